// The lab's agent: one process per network namespace that serves and probes TCP, UDP and SCTP over IPv4 and IPv6.
//
// It reads one command per line from stdin and prints one line of JSON for each, in the order in which they end:
//   ID serve PROTOCOL ADDRESS|* PORT NAME                  answers with NAME and what the server sees
//     -> {"id":ID,"ok":true}
//   ID probe PROTOCOL SOURCE|* DESTINATION PORT COUNT TIMEOUT_MS CONCURRENCY SOURCE_PORT|0
//     -> {"id":ID,"outcomes":[{"count":N,"result":"ok","name":…,"seen":ADDRESS,"at":ADDRESS,"atPort":N,
//                              "sourceKept":BOOL},
//                             {"count":N,"result":"refused"},                    a TCP reset, an SCTP ABORT
//                             {"count":N,"result":"unreachable","type":N,"code":N},       an ICMP error
//                             {"count":N,"result":"timeout"}]}
//   ID flow udp|sctp SOURCE DESTINATION PORT SOURCE_PORT INTERVAL_MS   one packet after the other, one socket
//     -> {"id":ID,"answers":[{"name":…,"firstMs":N,"lastMs":N,"count":N}, …]}   runs of answers; CLOCK_MONOTONIC
//   ID endflows                                             ends all flows, each after one more answer
//     -> {"id":ID,"ok":true}
//   any failure -> {"id":ID,"error":TEXT}
// It ends with its stdin.
#include <pthread.h>
#include <sys/prctl.h>

#include <csignal>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>

#include "flow.hpp"
#include "probe.hpp"
#include "serve.hpp"

namespace {

std::mutex outputMutex;

void say(const std::string& line) {
  const std::lock_guard<std::mutex> lock(outputMutex);
  std::cout << line << std::endl;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

uint16_t portOf(int value) {
  if (value < 0 || value > 65535) throw std::runtime_error("not a port");
  return static_cast<uint16_t>(value);
}

std::string runProbe(std::istringstream& words) {
  lab::Query query;
  std::string source, destination;
  int port = 0, sourcePort = 0;
  words >> query.protocol >> source >> destination >> port >> query.count >> query.timeoutMs >> query.concurrency >>
      sourcePort;
  if (!words) throw std::runtime_error("usage: probe PROTOCOL SOURCE DESTINATION PORT COUNT TIMEOUT CONCURRENCY SPORT");
  query.destination = lab::Address::parse(destination, portOf(port));
  query.source = source == "*" ? lab::sourceFor(query.destination) : lab::Address::parse(source, 0);
  query.source.port(portOf(sourcePort));
  std::string out = "\"outcomes\":[";
  bool first = true;
  for (const auto& [fields, count] : lab::probe(query)) {
    out += std::string(first ? "" : ",") + "{\"count\":" + std::to_string(count) + "," + fields + "}";
    first = false;
  }
  return out + "]";
}

std::string runFlow(std::istringstream& words) {
  lab::FlowQuery query;
  std::string source, destination;
  int port = 0, sourcePort = 0;
  words >> query.protocol >> source >> destination >> port >> sourcePort >> query.intervalMs;
  if (!words) throw std::runtime_error("usage: flow PROTOCOL SOURCE DESTINATION PORT SPORT INTERVAL");
  query.destination = lab::Address::parse(destination, portOf(port));
  query.source = lab::Address::parse(source, portOf(sourcePort));
  std::ostringstream out;
  out.precision(3);
  out << std::fixed << "\"answers\":[";
  bool first = true;
  for (const auto& answers : lab::Flow(query).run()) {
    out << (first ? "" : ",") << "{\"name\":" << quoted(answers.name) << ",\"firstMs\":" << answers.firstMs
        << ",\"lastMs\":" << answers.lastMs << ",\"count\":" << answers.count << "}";
    first = false;
  }
  out << "]";
  return out.str();
}

std::string run(lab::Servers& servers, std::istringstream& words) {
  std::string verb;
  words >> verb;
  if (verb == "probe") return runProbe(words);
  if (verb == "flow") return runFlow(words);
  if (verb == "endflows") {
    ++lab::flowsEnded;
    return "\"ok\":true";
  }
  if (verb == "serve") {
    std::string protocol, address, name;
    int port = 0;
    words >> protocol >> address >> port >> name;
    if (!words) throw std::runtime_error("usage: serve PROTOCOL ADDRESS PORT NAME");
    servers.serve(protocol, address, portOf(port), name);
    return "\"ok\":true";
  }
  throw std::runtime_error("unknown command " + verb);
}

/// A thread that is not joined. It is created detached: in glibc, pthread_detach (which std::thread::detach calls) may
/// read a thread that has just ended and freed itself.
void runDetached(std::function<void()> work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  auto* argument = new std::function<void()>(std::move(work));
  pthread_t thread;
  const int error = pthread_create(
      &thread, &attributes,
      [](void* given) -> void* {
        const std::unique_ptr<std::function<void()>> own(static_cast<std::function<void()>*>(given));
        (*own)();
        return nullptr;
      },
      argument);
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    delete argument;
    throw std::runtime_error(std::string("pthread_create: ") + std::strerror(error));
  }
}

}  // namespace

int main() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  lab::Servers servers;
  std::string line;
  while (std::getline(std::cin, line)) {
    // A probe takes as long as its timeout, so each command runs on its own thread.
    runDetached([&servers, line] {
      std::istringstream words(line);
      std::string id;
      words >> id;
      try {
        say("{\"id\":" + id + "," + run(servers, words) + "}");
      } catch (const std::exception& error) {
        say("{\"id\":" + id + ",\"error\":" + quoted(error.what()) + "}");
      }
    });
  }
  _exit(0);  // threads may still be running
}

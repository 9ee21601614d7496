// Sends one first packet of a connection and its reply at a time, and says what became of each. One process works in
// all namespaces, because a veth hands a packet on within the send itself: a packet that arrives costs no waiting.
//
// It reads one command per line from stdin, and prints one line of JSON for each:
//   serve NETNS NAME PORT        answers UDP and TCP on PORT there
//     -> {"ok":true}
//   send tcp|udp NETNS SOURCE SOURCE_PORT DESTINATION PORT WAIT_MS
//     -> {"at":NAME,"port":N,"seen":ADDRESS,"reply":BOOL,"error":ERRNO}
//        at: the namespace in which the packet reached a socket, "" if none; port: the port there; seen: its source
//        reply: whether the reply reached the sender; error: an error that reached the sender instead, 0 if none
// It ends with its stdin. WAIT_MS is how long to wait for a packet or a reply that does not come.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "net.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using lab::Address;
using lab::Fd;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

void require(int result, const char* what) {
  if (result < 0) fail(what);
}

void enable(int fd, int level, int option) {
  const int on = 1;
  require(setsockopt(fd, level, option, &on, sizeof on), "setsockopt");
}

/// Ends a connection with a reset, so that no state is left for the next packet.
void resetAtClose(int fd) {
  const linger now{1, 0};
  require(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), "SO_LINGER");
}

class Namespaces {
 public:
  void enter(const std::string& name) {
    auto found = fds_.find(name);
    if (found == fds_.end()) {
      const int fd = open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0) fail("namespace " + name);
      found = fds_.emplace(name, fd).first;
    }
    require(setns(found->second.get(), CLONE_NEWNET), "setns");
  }

 private:
  std::map<std::string, Fd> fds_;
};

enum class Kind { udp, listener, raw };

/// A socket that packets arrive at.
struct Server {
  Kind kind;
  int family;
  std::string name;
  uint16_t port;
  Fd fd;
};

struct Arrival {
  Address from, at;
};

constexpr int kFamilies[] = {AF_INET, AF_INET6};

Fd boundTo(int family, int type, uint16_t port) {
  Fd fd(socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) fail("socket");
  enable(fd.get(), SOL_SOCKET, SO_REUSEADDR);
  if (family == AF_INET6) enable(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY);
  sockaddr_storage at;
  const socklen_t length = Address::any(family, port).fill(at);
  require(bind(fd.get(), reinterpret_cast<sockaddr*>(&at), length), "bind");
  return fd;
}

void tellDestination(int fd, int family) {
  if (family == AF_INET)
    enable(fd, IPPROTO_IP, IP_PKTINFO);
  else
    enable(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO);
  // Answers from addresses that only a local route makes local.
  if (family == AF_INET6) enable(fd, IPPROTO_IPV6, IPV6_FREEBIND);
}

constexpr size_t kLargest = 512;

/// The source and destination of the next packet of a server's socket. The data is in `data`.
bool receive(const Server& server, char* data, ssize_t& length, Arrival& arrival) {
  sockaddr_storage peer{};
  alignas(cmsghdr) char control[256];
  iovec part{data, kLargest};
  msghdr message{&peer, sizeof peer, &part, 1, control, sizeof control, 0};
  length = recvmsg(server.fd.get(), &message, 0);
  if (length < 0) return false;
  arrival.from = Address::of(peer);
  for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(&message, one)) {
    if (one->cmsg_level == IPPROTO_IP && one->cmsg_type == IP_PKTINFO)
      arrival.at = Address::of(AF_INET, &reinterpret_cast<in_pktinfo*>(CMSG_DATA(one))->ipi_addr, server.port);
    if (one->cmsg_level == IPPROTO_IPV6 && one->cmsg_type == IPV6_PKTINFO)
      arrival.at = Address::of(AF_INET6, &reinterpret_cast<in6_pktinfo*>(CMSG_DATA(one))->ipi6_addr, server.port);
  }
  return true;
}

/// Answers a datagram from the address that it was sent to.
void answer(const Server& server, const Arrival& arrival, char* data, ssize_t length) {
  sockaddr_storage peer;
  const socklen_t peerLength = arrival.from.fill(peer);
  iovec part{data, static_cast<size_t>(length)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(in6_pktinfo))]{};
  const bool ip4 = server.family == AF_INET;
  const size_t size = ip4 ? sizeof(in_pktinfo) : sizeof(in6_pktinfo);
  msghdr message{&peer, peerLength, &part, 1, control, CMSG_SPACE(size), 0};
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = ip4 ? static_cast<int>(IPPROTO_IP) : static_cast<int>(IPPROTO_IPV6);
  header->cmsg_type = ip4 ? static_cast<int>(IP_PKTINFO) : static_cast<int>(IPV6_PKTINFO);
  header->cmsg_len = CMSG_LEN(size);
  if (ip4)
    std::memcpy(&reinterpret_cast<in_pktinfo*>(CMSG_DATA(header))->ipi_spec_dst, arrival.at.bytes(), 4);
  else
    std::memcpy(&reinterpret_cast<in6_pktinfo*>(CMSG_DATA(header))->ipi6_addr, arrival.at.bytes(), 16);
  // The node's rules may refuse the reply (EPERM).
  sendmsg(server.fd.get(), &message, 0);
}

struct Fate {
  std::string at;
  uint16_t port = 0;
  std::string seen;
  bool reply = false;
  int error = 0;
};

struct Request {
  std::string protocol, netns;
  Address source, destination;
  int waitMs = 0;
};

class Lab {
 public:
  void serve(const std::string& netns, const std::string& name, uint16_t port) {
    namespaces_.enter(netns);
    for (const int family : kFamilies) {
      Fd udp = boundTo(family, SOCK_DGRAM, port);
      tellDestination(udp.get(), family);
      servers_.push_back({Kind::udp, family, name, port, std::move(udp)});
      Fd tcp = boundTo(family, SOCK_STREAM, port);
      require(listen(tcp.get(), 64), "listen");
      servers_.push_back({Kind::listener, family, name, port, std::move(tcp)});
      if (!observed_.emplace(name, family).second) continue;
      // Sees each TCP segment that is delivered there, even if the listener's answer is dropped.
      Fd raw(socket(family, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
      if (!raw) fail("raw socket");
      servers_.push_back({Kind::raw, family, name, 0, std::move(raw)});
    }
  }

  Fate send(const Request& request) {
    for (const Server& server : servers_) drain(server);
    const bool tcp = request.protocol == "tcp";
    const int family = request.destination.family();
    namespaces_.enter(request.netns);
    Fd client(socket(family, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!client) fail("socket");
    if (family == AF_INET)
      enable(client.get(), IPPROTO_IP, IP_RECVERR);
    else
      enable(client.get(), IPPROTO_IPV6, IPV6_RECVERR);
    enable(client.get(), SOL_SOCKET, SO_REUSEADDR);
    if (tcp) resetAtClose(client.get());
    sockaddr_storage at;
    socklen_t length = request.source.fill(at);
    require(bind(client.get(), reinterpret_cast<sockaddr*>(&at), length), "bind");
    length = request.destination.fill(at);
    cookie_ = std::to_string(++count_);
    Fate fate;
    if (connect(client.get(), reinterpret_cast<sockaddr*>(&at), length) != 0 && errno != EINPROGRESS) {
      fate.error = errno;
      return fate;
    }
    // The node's rules may refuse the packet (EPERM), which says nothing about an error that follows.
    if (!tcp) ::send(client.get(), cookie_.data(), cookie_.size(), 0);
    request_ = request;
    watch(client.get(), tcp, family, request.waitMs, fate);
    if (fate.reply) fate.error = 0;
    return fate;
  }

 private:
  void drain(const Server& server) {
    char data[kLargest];
    if (server.kind == Kind::listener) {
      for (;;) {
        const Fd accepted(accept4(server.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!accepted) return;
        resetAtClose(accepted.get());
      }
    }
    while (recv(server.fd.get(), data, sizeof data, 0) >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
    }
  }

  void watch(int client, bool tcp, int family, int waitMs, Fate& fate) {
    std::vector<pollfd> polled;
    std::vector<const Server*> behind;
    for (const Server& server : servers_) {
      if (server.family != family || server.kind != (tcp ? Kind::raw : Kind::udp)) continue;
      polled.push_back({server.fd.get(), POLLIN, 0});
      behind.push_back(&server);
    }
    polled.push_back({client, static_cast<short>(tcp ? POLLOUT : POLLIN), 0});
    auto until = Clock::now() + std::chrono::milliseconds(waitMs);
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
      const int ready = poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(left, 0)));
      // The servers come first, because a reply cannot precede its request.
      for (size_t i = 0; i < behind.size(); ++i) {
        if (polled[i].revents == 0 || !meet(*behind[i], fate)) continue;
        until = Clock::now() + std::chrono::milliseconds(waitMs);
      }
      if (polled.back().revents != 0) {
        socklen_t length = sizeof fate.error;
        getsockopt(client, SOL_SOCKET, SO_ERROR, &fate.error, &length);
        char data[kLargest];
        if (fate.error == 0 && !tcp) fate.reply = recv(client, data, sizeof data, 0) >= 0;
        if (fate.error != 0) return;
        // A connected socket stays writable.
        polled.back().events = tcp ? 0 : POLLIN;
      }
      if (fate.reply) return;
      if (ready <= 0) return;
    }
  }

  /// Reads what arrived. Returns whether it is the packet.
  bool meet(const Server& server, Fate& fate) {
    char data[kLargest];
    ssize_t length = 0;
    Arrival arrival;
    bool met = false;
    while (receive(server, data, length, arrival)) {
      if (server.kind == Kind::raw) {
        const size_t skipped = server.family == AF_INET ? (data[0] & 0xf) * 4u : 0u;
        if (static_cast<size_t>(length) < skipped + 20) continue;
        tcphdr header;
        std::memcpy(&header, data + skipped, sizeof header);
        if (!header.syn) continue;
        if (header.ack) {
          // The reply. What the rules do with the third packet of the handshake does not matter here.
          fate.reply |= ntohs(header.dest) == request_.source.port() &&
                        ntohs(header.source) == request_.destination.port() &&
                        arrival.from.sameHost(request_.destination);
          continue;
        }
        arrival.at.port(ntohs(header.dest));
        fate.port = ntohs(header.dest);
      } else {
        // The reply has the same data, and a rule may redirect it to another server.
        if (!fate.at.empty() || std::string(data, static_cast<size_t>(length)) != cookie_) continue;
        answer(server, arrival, data, length);
        fate.port = server.port;
      }
      fate.at = server.name;
      fate.seen = arrival.from.text();
      met = true;
    }
    return met;
  }

  Namespaces namespaces_;
  std::vector<Server> servers_;
  std::set<std::pair<std::string, int>> observed_;
  std::string cookie_;
  Request request_;
  uint64_t count_ = 0;
};

uint16_t portOf(int value) {
  if (value < 0 || value > 65535) throw std::runtime_error("not a port");
  return static_cast<uint16_t>(value);
}

std::string run(Lab& lab, std::istringstream& words) {
  std::string verb;
  words >> verb;
  if (verb == "serve") {
    std::string netns, name;
    int port = 0;
    words >> netns >> name >> port;
    if (!words) throw std::runtime_error("usage: serve NETNS NAME PORT");
    lab.serve(netns, name, portOf(port));
    return "\"ok\":true";
  }
  if (verb != "send") throw std::runtime_error("unknown command " + verb);
  Request request;
  std::string source, destination;
  int sourcePort = 0, port = 0;
  words >> request.protocol >> request.netns >> source >> sourcePort >> destination >> port >> request.waitMs;
  if (!words) throw std::runtime_error("usage: send PROTOCOL NETNS SOURCE SOURCE_PORT DESTINATION PORT WAIT_MS");
  request.source = Address::parse(source, portOf(sourcePort));
  request.destination = Address::parse(destination, portOf(port));
  const Fate fate = lab.send(request);
  return "\"at\":\"" + fate.at + "\",\"port\":" + std::to_string(fate.port) + ",\"seen\":\"" + fate.seen +
         "\",\"reply\":" + (fate.reply ? "true" : "false") + ",\"error\":" + std::to_string(fate.error);
}

}  // namespace

int main() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Lab lab;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    try {
      std::cout << "{" << run(lab, words) << "}" << std::endl;
    } catch (const std::exception& error) {
      std::cout << "{\"failed\":\"" << error.what() << "\"}" << std::endl;
    }
  }
  return 0;
}

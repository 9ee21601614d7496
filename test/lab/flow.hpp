// One flow of the lab's agent: repeats a packet from one socket and records the answering servers with times.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <optional>

#include "net.hpp"
#include "probe.hpp"

namespace lab {

struct FlowQuery {
  std::string protocol;  ///< udp or sctp
  Address source;        ///< with its port
  Address destination;
  int intervalMs = 10;
};

/// Number of times that all flows got the command to end. A flow ends at the first increase after its start.
inline std::atomic<int> flowsEnded{0};

/// Times are CLOCK_MONOTONIC in ms, like process.hrtime in other processes of this machine.
struct FlowAnswers {
  std::string name;
  double firstMs = 0, lastMs = 0;
  int count = 0;
};

inline double monotonicMs() {
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

class Flow {
 public:
  explicit Flow(const FlowQuery& query) : query_(query), sctp_(query.protocol == "sctp") {
    const int family = query_.destination.family();
    fd_ = Fd(socket(family, (sctp_ ? SOCK_RAW : SOCK_DGRAM) | SOCK_NONBLOCK | SOCK_CLOEXEC, sctp_ ? IPPROTO_SCTP : 0));
    if (!fd_) throw std::runtime_error(std::string("flow: socket: ") + std::strerror(errno));
    if (sctp_) {
      wantDestination(fd_.get(), family);
      return;
    }
    sockaddr_storage where;
    if (bind(fd_.get(), reinterpret_cast<sockaddr*>(&where), query_.source.fill(where)) != 0 ||
        connect(fd_.get(), reinterpret_cast<sockaddr*>(&where), query_.destination.fill(where)) != 0)
      throw std::runtime_error(std::string("flow: ") + std::strerror(errno));
  }

  /// Runs until flows get the command to end and one more packet is answered, so that the last run is of the server
  /// that answers at the end. Waits at most kLastMs for that answer. Returns runs of answers by one server, in order.
  /// Lost, refused or dropped packets show as a gap.
  std::vector<FlowAnswers> run() {
    const int begun = flowsEnded;
    auto next = Clock::now();
    std::optional<Clock::time_point> ended;
    while (!ended || (!answered_ && Clock::now() < *ended + std::chrono::milliseconds(kLastMs))) {
      if (!ended && flowsEnded != begun) {
        take();  // answers to earlier packets
        ended = Clock::now();
        answered_ = false;
      }
      send();
      next += std::chrono::milliseconds(query_.intervalMs);
      for (auto now = Clock::now(); now < next; now = Clock::now()) {
        pollfd entry{fd_.get(), POLLIN, 0};
        poll(&entry, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(next - now).count()));
        if (entry.revents != 0) take();
      }
    }
    return std::move(answers_);
  }

 private:
  /// A packet that is rejected on its way counts as lost; the next one is sent all the same.
  void send() {
    if (sctp_) {
      const auto packet = sctp::handshake(sctp::kInit, query_.source.port(), query_.destination.port(), 0, kTag, "");
      sendFrom(fd_.get(), query_.source, query_.destination, false, packet.data(), packet.size());
    } else {
      ::send(fd_.get(), "?", 1, 0);
    }
  }

  void take() {
    if (!sctp_) {
      char buffer[512];
      for (ssize_t got; (got = recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT)) > 0;)
        note(std::string(buffer, static_cast<size_t>(got)));
      clearError();
      return;
    }
    while (auto got = receive(fd_.get())) {
      sctp::stripIpHeader(*got);
      const auto packet = sctp::parse(got->data);
      if (packet && packet->type == sctp::kInitAck && packet->verification == kTag &&
          packet->to == query_.source.port() && got->peer.sameHost(query_.destination))
        note(packet->cookie);
    }
    clearError();
  }

  void clearError() const {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }

  void note(const std::string& text) {
    const std::string name = text.substr(0, text.find(' '));
    const double now = monotonicMs();
    if (answers_.empty() || answers_.back().name != name) answers_.push_back({name, now, now, 0});
    answers_.back().lastMs = now;
    ++answers_.back().count;
    answered_ = true;
  }

  static constexpr uint32_t kTag = 0x20001;
  static constexpr int kLastMs = 10'000;
  const FlowQuery query_;
  const bool sctp_;
  Fd fd_;
  std::vector<FlowAnswers> answers_;
  bool answered_ = false;  ///< whether an answer came since the command to end
};

}  // namespace lab

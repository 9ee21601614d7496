// The client half of the lab's agent: opens many connections at once and counts their results.
#pragma once

#include <linux/errqueue.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>

#include "net.hpp"

namespace lab {

struct Query {
  std::string protocol;
  Address source;  /// < port 0: a new one for each connection
  Address destination;
  int count = 1;
  int timeoutMs = 1000;
  int concurrency = 32;
};

/// Results of connections: the JSON fields of an outcome, and how many connections had it.
using Tally = std::map<std::string, int>;

using Clock = std::chrono::steady_clock;

/// Source ports are never reused while the kernel may still track their last connection: an old conntrack entry would
/// decide where a "new" connection goes.
class Ports {
 public:
  static uint16_t next() {
    static std::atomic<uint32_t> counter{static_cast<uint32_t>(Clock::now().time_since_epoch().count())};
    const uint32_t port = kFirst + counter++ % (kLast - kFirst - kNodePorts);
    return static_cast<uint16_t>(port < kFirstNodePort ? port : port + kNodePorts);
  }

 private:
  // Many ports, without the usual node ports: an entry must have expired before its port is used again.
  static constexpr uint32_t kFirst = 12000, kLast = 65000, kFirstNodePort = 30000, kNodePorts = 3000;
};

inline std::string failed(const std::string& what, int error) {
  return "\"result\":\"error\",\"error\":\"" + what + ": " + std::strerror(error) + "\"";
}

/// `text` is a server's reply (replyText).
inline std::string answered(const std::string& text, const Address& source) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ' ') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  if (words.size() != 5) return "\"result\":\"garbled\"";
  const bool kept = words[1] == source.text() && words[2] == std::to_string(source.port());
  return "\"result\":\"ok\",\"name\":\"" + words[0] + "\",\"seen\":\"" + words[1] + "\",\"at\":\"" + words[3] +
         "\",\"atPort\":" + words[4] + ",\"sourceKept\":" + (kept ? "true" : "false");
}

inline void wantErrors(int fd, int family) {
  const int on = 1;
  if (family == AF_INET) {
    setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on);
  } else {
    setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on);
  }
}

/// An ICMP error from the socket's error queue, with the start of the packet that caused it.
struct IcmpError {
  std::string fields;
  std::vector<uint8_t> packet;
};

inline std::optional<IcmpError> takeIcmpError(int fd) {
  for (;;) {
    IcmpError out;
    out.packet.resize(512);
    iovec part{out.packet.data(), out.packet.size()};
    alignas(cmsghdr) char control[512];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t size = recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
    if (size < 0) return std::nullopt;
    out.packet.resize(static_cast<size_t>(size));
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      const bool v4 = header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_RECVERR;
      const bool v6 = header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_RECVERR;
      if (!v4 && !v6) continue;
      sock_extended_err error;
      std::memcpy(&error, CMSG_DATA(header), sizeof error);
      if (error.ee_origin != SO_EE_ORIGIN_ICMP && error.ee_origin != SO_EE_ORIGIN_ICMP6) continue;
      out.fields = "\"result\":\"unreachable\",\"type\":" + std::to_string(error.ee_type) +
                   ",\"code\":" + std::to_string(error.ee_code);
      return out;
    }
  }
}

/// TCP and UDP: one socket per connection.
class SocketProbe {
 public:
  explicit SocketProbe(const Query& query) : query_(query), tcp_(query.protocol == "tcp") {}

  Tally run() {
    int started = 0;
    while (started < query_.count || !flights_.empty()) {
      while (started < query_.count && flights_.size() < static_cast<size_t>(query_.concurrency)) {
        start();
        ++started;
      }
      wait();
    }
    return tally_;
  }

 private:
  struct Flight {
    Fd fd;
    Address source;
    Clock::time_point deadline;
    bool connected = false;
    std::string text;
  };

  void start() {
    Flight flight;
    flight.deadline = Clock::now() + std::chrono::milliseconds(query_.timeoutMs);
    const int family = query_.destination.family();
    sockaddr_storage where;
    for (int attempt = 0;; ++attempt) {
      flight.fd = Fd(socket(family, (tcp_ ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (!flight.fd) return count(failed("socket", errno));
      const int on = 1;
      if (tcp_) setsockopt(flight.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      wantErrors(flight.fd.get(), family);
      flight.source = query_.source;
      if (flight.source.port() == 0) flight.source.port(Ports::next());
      const socklen_t size = flight.source.fill(where);
      if (bind(flight.fd.get(), reinterpret_cast<sockaddr*>(&where), size) == 0) break;
      if (errno != EADDRINUSE || attempt == 50) return count(failed("bind", errno));
    }
    const socklen_t size = query_.destination.fill(where);
    const int done = connect(flight.fd.get(), reinterpret_cast<sockaddr*>(&where), size);
    if (done != 0 && errno != EINPROGRESS && errno != ECONNREFUSED) return count(failed("connect", errno));
    // A datagram that a filter drops on its way out fails with EPERM: treat it as silence.
    if (!tcp_ && send(flight.fd.get(), "?", 1, 0) < 0 && errno != EPERM && errno != ECONNREFUSED)
      return count(failed("send", errno));
    flights_.push_back(std::move(flight));
  }

  void wait() {
    std::vector<pollfd> polls;
    auto nearest = Clock::time_point::max();
    for (const Flight& flight : flights_) {
      const bool connecting = tcp_ && !flight.connected;
      polls.push_back({flight.fd.get(), static_cast<short>(connecting ? POLLOUT : POLLIN), 0});
      nearest = std::min(nearest, flight.deadline);
    }
    if (polls.empty()) return;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(nearest - Clock::now()).count();
    poll(polls.data(), polls.size(), static_cast<int>(std::max<decltype(left)>(left, 0)));
    const auto now = Clock::now();
    std::vector<Flight> open;
    for (size_t i = 0; i < flights_.size(); ++i) {
      Flight& flight = flights_[i];
      std::optional<std::string> end;
      if (polls[i].revents != 0) end = advance(flight, polls[i].revents);
      if (!end && now >= flight.deadline) end = "\"result\":\"timeout\"";
      if (end) {
        finish(flight, *end);
      } else {
        open.push_back(std::move(flight));
      }
    }
    flights_ = std::move(open);
  }

  /// Returns the outcome once there is one.
  std::optional<std::string> advance(Flight& flight, short events) const {
    if ((events & POLLERR) != 0) {
      if (const auto icmp = takeIcmpError(flight.fd.get())) return icmp->fields;
    }
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(flight.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == ECONNREFUSED) return "\"result\":\"refused\"";
    if (error != 0) return failed("socket", error);
    flight.connected = true;
    char buffer[512];
    const ssize_t got = recv(flight.fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EAGAIN) return std::nullopt;
      return failed("recv", errno);
    }
    flight.text.append(buffer, static_cast<size_t>(got));
    if (tcp_ && got > 0) return std::nullopt;  // until the server closes
    return answered(flight.text, flight.source);
  }

  void finish(Flight& flight, const std::string& outcome) {
    if (tcp_) {  // reset: neither end keeps a socket in TIME_WAIT
      const linger now{1, 0};
      setsockopt(flight.fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    flight.fd = Fd();
    count(outcome);
  }

  void count(const std::string& outcome) { ++tally_[outcome]; }

  const Query query_;
  const bool tcp_;
  std::vector<Flight> flights_;
  Tally tally_;
};

/// SCTP: one raw socket, an INIT for each connection.
class SctpProbe {
 public:
  explicit SctpProbe(const Query& query) : query_(query) {}

  Tally run() {
    const int family = query_.destination.family();
    fd_ = Fd(socket(family, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_SCTP));
    if (!fd_) throw std::runtime_error(std::string("sctp: socket: ") + std::strerror(errno));
    wantErrors(fd_.get(), family);
    wantDestination(fd_.get(), family);
    enlargeBuffer(fd_.get(), SO_RCVBUFFORCE, SO_RCVBUF);
    int started = 0;
    while (started < query_.count || !flights_.empty()) {
      while (started < query_.count && flights_.size() < static_cast<size_t>(query_.concurrency)) {
        start();
        ++started;
      }
      wait();
    }
    return tally_;
  }

 private:
  struct Flight {
    uint32_t tag;
    Clock::time_point deadline;
  };

  void start() {
    Address source = query_.source;
    if (source.port() == 0) source.port(Ports::next());
    const uint32_t tag = 0x10000U + source.port();
    const auto packet = sctp::handshake(sctp::kInit, source.port(), query_.destination.port(), 0, tag, "");
    const auto deadline = Clock::now() + std::chrono::milliseconds(query_.timeoutMs);
    if (sendFrom(fd_.get(), source, query_.destination, false, packet.data(), packet.size()) < 0 && errno != EPERM &&
        errno != ECONNREFUSED) {
      ++tally_[failed("send", errno)];
      return;
    }
    flights_[source.port()] = Flight{tag, deadline};
  }

  void wait() {
    auto nearest = Clock::time_point::max();
    for (const auto& [port, flight] : flights_) nearest = std::min(nearest, flight.deadline);
    if (flights_.empty()) return;
    pollfd entry{fd_.get(), POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(nearest - Clock::now()).count();
    poll(&entry, 1, static_cast<int>(std::max<decltype(left)>(left, 0)));
    while (const auto icmp = takeIcmpError(fd_.get())) {
      if (icmp->packet.size() >= 2) end(static_cast<uint16_t>(sctp::get16(icmp->packet, 0)), icmp->fields);
    }
    int pending = 0;
    socklen_t size = sizeof pending;
    getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &pending, &size);  // otherwise the next receive reports it
    while (auto got = receive(fd_.get())) take(*got);
    const auto now = Clock::now();
    std::vector<uint16_t> expired;
    for (const auto& [port, flight] : flights_)
      if (now >= flight.deadline) expired.push_back(port);
    for (const uint16_t port : expired) end(port, "\"result\":\"timeout\"");
  }

  /// The socket sees every SCTP packet that arrives here: count only true replies to our packets.
  void take(Received& got) {
    sctp::stripIpHeader(got);
    const auto packet = sctp::parse(got.data);
    if (!packet || packet->from != query_.destination.port() || !got.peer.sameHost(query_.destination)) return;
    const auto flight = flights_.find(packet->to);
    if (flight == flights_.end() || packet->verification != flight->second.tag) return;
    Address source = query_.source;
    source.port(packet->to);
    if (packet->type == sctp::kInitAck) end(packet->to, answered(packet->cookie, source));
    if (packet->type == sctp::kAbort) end(packet->to, "\"result\":\"refused\"");
  }

  void end(uint16_t port, const std::string& outcome) {
    if (flights_.erase(port) != 0) ++tally_[outcome];
  }

  const Query query_;
  Fd fd_;
  std::map<uint16_t, Flight> flights_;
  Tally tally_;
};

/// Returns the address that the kernel would send from.
inline Address sourceFor(const Address& destination) {
  const Fd fd(socket(destination.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage where;
  socklen_t size = destination.fill(where);
  if (!fd || connect(fd.get(), reinterpret_cast<sockaddr*>(&where), size) != 0)
    throw std::runtime_error("no route to " + destination.text() + ": " + std::strerror(errno));
  size = sizeof where;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&where), &size);
  Address source = Address::of(where);
  source.port(0);
  return source;
}

inline Tally probe(const Query& query) {
  if (query.protocol == "sctp") return SctpProbe(query).run();
  return SocketProbe(query).run();
}

}  // namespace lab

// The server half of the lab's agent: one thread, one epoll, any number of TCP, UDP and SCTP servers.
#pragma once

#include <sys/epoll.h>

#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>

#include "net.hpp"

namespace lab {

class Servers {
 public:
  Servers() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) throw std::runtime_error("epoll_create1");
    std::thread([this] { loop(); }).detach();
  }

  /// `address` may be "*": every address of both families. Answers leave from the address that the client used.
  void serve(const std::string& protocol, const std::string& address, uint16_t port, const std::string& name) {
    if (address == "*") {
      for (const int family : {AF_INET, AF_INET6}) add(protocol, Address::any(family, port), true, name);
    } else {
      add(protocol, Address::parse(address, port), false, name);
    }
  }

 private:
  enum class Kind { kTcp, kUdp, kSctp };
  struct Listener {
    Kind kind;
    Fd fd;
    int family;
    std::string name;
  };

  void add(const std::string& protocol, const Address& at, bool wildcard, const std::string& name) {
    if (protocol == "sctp") {
      const std::lock_guard<std::mutex> lock(mutex_);
      sctpNames_[{at.family(), wildcard ? "*" : at.text(), at.port()}] = name;
      if (sctpOpen_[at.family() == AF_INET ? 0 : 1]) return;
      sctpOpen_[at.family() == AF_INET ? 0 : 1] = true;
    }
    auto listener = std::make_unique<Listener>();
    listener->kind = protocol == "tcp" ? Kind::kTcp : protocol == "udp" ? Kind::kUdp : Kind::kSctp;
    listener->family = at.family();
    listener->name = name;
    listener->fd = open(listener->kind, at, protocol);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = listener.get();
    const int fd = listener->fd.get();
    const std::lock_guard<std::mutex> lock(mutex_);
    listeners_.push_back(std::move(listener));  // never removed: epoll holds the pointer
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw std::runtime_error("epoll_ctl");
  }

  static Fd open(Kind kind, const Address& at, const std::string& protocol) {
    const int type = kind == Kind::kTcp ? SOCK_STREAM : kind == Kind::kUdp ? SOCK_DGRAM : SOCK_RAW;
    Fd fd(socket(at.family(), type | SOCK_NONBLOCK | SOCK_CLOEXEC, kind == Kind::kSctp ? IPPROTO_SCTP : 0));
    if (!fd) throw std::runtime_error(protocol + ": socket: " + std::strerror(errno));
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (kind != Kind::kTcp) {
      enlargeBuffer(fd.get(), SO_RCVBUFFORCE, SO_RCVBUF);
      enlargeBuffer(fd.get(), SO_SNDBUFFORCE, SO_SNDBUF);
    }
    if (at.family() == AF_INET6 && kind != Kind::kSctp) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    wantDestination(fd.get(), at.family());
    if (kind == Kind::kSctp) return fd;
    sockaddr_storage where;
    const socklen_t size = at.fill(where);
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&where), size) != 0 ||
        (kind == Kind::kTcp && listen(fd.get(), 4096) != 0))
      throw std::runtime_error(protocol + " " + at.text() + " " + std::to_string(at.port()) + ": " +
                               std::strerror(errno));
    return fd;
  }

  void loop() {
    std::array<epoll_event, 64> events;
    for (;;) {
      const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
      for (int i = 0; i < count; ++i) {
        const auto& listener = *static_cast<const Listener*>(events[static_cast<size_t>(i)].data.ptr);
        switch (listener.kind) {
          case Kind::kTcp:
            acceptAll(listener);
            break;
          case Kind::kUdp:
            answerDatagrams(listener);
            break;
          case Kind::kSctp:
            answerSctp(listener);
            break;
        }
      }
    }
  }

  static void acceptAll(const Listener& listener) {
    for (;;) {
      sockaddr_storage peer{}, local{};
      socklen_t peerSize = sizeof peer, localSize = sizeof local;
      const Fd fd(accept4(listener.fd.get(), reinterpret_cast<sockaddr*>(&peer), &peerSize, SOCK_CLOEXEC));
      if (!fd) return;
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &localSize);
      const std::string text = replyText(listener.name, Address::of(peer), Address::of(local));
      // The reply fits any socket buffer: one send writes all of it, or the peer is gone.
      if (send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0) continue;
    }
  }

  static void answerDatagrams(const Listener& listener) {
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    getsockname(listener.fd.get(), reinterpret_cast<sockaddr*>(&bound), &size);
    while (auto got = receive(listener.fd.get())) {
      Address local = got->local;
      local.port(Address::of(bound).port());
      const std::string text = replyText(listener.name, got->peer, local);
      sendFrom(listener.fd.get(), local, got->peer, true, text.data(), text.size());
    }
  }

  /// Answers an INIT to a served port with an INIT ACK, and to any other port with an ABORT, as a real stack would.
  void answerSctp(const Listener& listener) {
    while (auto got = receive(listener.fd.get())) {
      sctp::stripIpHeader(*got);
      const auto packet = sctp::parse(got->data);
      if (!packet || packet->type != sctp::kInit || packet->verification != 0) continue;
      got->peer.port(packet->from);
      got->local.port(packet->to);
      const auto name = sctpName(listener.family, got->local);
      const auto answer = name ? sctp::handshake(sctp::kInitAck, packet->to, packet->from, packet->tag, packet->tag ^ 1,
                                                 replyText(*name, got->peer, got->local))
                               : sctp::abort(packet->to, packet->from, packet->tag);
      sendFrom(listener.fd.get(), got->local, got->peer, false, answer.data(), answer.size());
    }
  }

  std::optional<std::string> sctpName(int family, const Address& local) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const std::string& host : {local.text(), std::string("*")}) {
      const auto found = sctpNames_.find({family, host, local.port()});
      if (found != sctpNames_.end()) return found->second;
    }
    return std::nullopt;
  }

  Fd epoll_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::map<std::tuple<int, std::string, uint16_t>, std::string> sctpNames_;
  std::array<bool, 2> sctpOpen_{};
};

}  // namespace lab

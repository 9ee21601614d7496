// A socket to ctnetlink: sends requests and receives checked messages.
#pragma once

#include <linux/netlink.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "codec/attr.h"
#include "codec/failure.h"
#include "conntrack/requests.h"
#include "socket/socket.h"
#include "socket/socket_pool.h"

namespace nftp {

// A system call or a request to ctnetlink that failed.
Failure ConntrackFailure(int error);

// The kernel fills at most 32 KiB per datagram of a dump, and only if the receiver's buffer is that large.
constexpr size_t kConntrackDatagram = 1 << 16;

class ConntrackSocket {
 public:
  explicit ConntrackSocket(const NetNamespace& netns);

  bool alive() const { return socket_.alive(); }
  // Throws Failure.
  void Send(const ConntrackRequests& requests) const;

  // Waits for one datagram, which stays valid until the next call. Throws Failure also if the kernel lost a message, so
  // that no dump is silently incomplete.
  std::pair<const uint8_t*, size_t> Receive();
  // Waits for one datagram and passes its messages to `on_message` until that returns false. Returns the last result.
  bool Receive(const std::function<bool(const nlmsghdr*)>& on_message);

  // Receives until the answer to `last`, and passes on every message with its errno, or 0 if it is no error. Not for
  // dumps.
  void Answers(uint32_t last, const std::function<void(const nlmsghdr*, int)>& on_answer);

 private:
  const NetlinkSocket socket_;
  std::vector<uint8_t> buffer_;
};

using ConntrackSockets = SocketPool<ConntrackSocket>;

// Passes the messages of a datagram to `use` until that returns false. Returns the last result. Throws Failure if the
// datagram was truncated or says that others were lost.
template <typename Use>
bool EachConntrackMessage(const uint8_t* at, size_t left, Use use) {
  while (left != 0) {
    const auto* message = reinterpret_cast<const nlmsghdr*>(at);
    if (left < sizeof(nlmsghdr) || message->nlmsg_len < sizeof(nlmsghdr) || message->nlmsg_len > left) {
      throw Malformed("the message's length is out of bounds");
    }
    if (message->nlmsg_type == NLMSG_OVERRUN) {
      throw Failure("unknown-outcome", "part of the kernel's answer was lost", ENOBUFS);
    }
    if (message->nlmsg_type != NLMSG_NOOP && !use(message)) return false;
    const size_t step = std::min(left, Align4(message->nlmsg_len));
    at += step;
    left -= step;
  }
  return true;
}

}  // namespace nftp

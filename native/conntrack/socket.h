// A socket that talks to ctnetlink: requests out, checked messages in.
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

// The kernel fills at most 32 KiB per datagram of a dump, and only for who reads with a buffer of that size.
constexpr size_t kConntrackDatagram = 1 << 16;

class ConntrackSocket {
 public:
  explicit ConntrackSocket(const NetNamespace& netns);

  bool alive() const { return socket_.alive(); }
  // Throws Failure.
  void Send(const ConntrackRequests& requests) const;

  // Waits for one datagram, which stays until the next. Throws Failure also when the kernel lost something, so that no
  // dump is silently short.
  std::pair<const uint8_t*, size_t> Receive();
  // Waits for one datagram and hands over its messages until `on_message` is false, which is then the result.
  bool Receive(const std::function<bool(const nlmsghdr*)>& on_message);

  // Receives until the answer to `last`, and hands over every message with its errno; 0: it is no error. Not for dumps.
  void Answers(uint32_t last, const std::function<void(const nlmsghdr*, int)>& on_answer);

 private:
  const NetlinkSocket socket_;
  std::vector<uint8_t> buffer_;
};

using ConntrackSockets = SocketPool<ConntrackSocket>;

// The messages of a datagram, one by one, until `use` is false, which is then the result. Throws Failure when it was
// cut off, or says that others were lost.
template <typename Use>
bool EachConntrackMessage(const uint8_t* at, size_t left, Use use) {
  while (left != 0) {
    const auto* message = reinterpret_cast<const nlmsghdr*>(at);
    if (left < sizeof(nlmsghdr) || message->nlmsg_len < sizeof(nlmsghdr) || message->nlmsg_len > left) {
      throw Malformed("message length out of bounds");
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

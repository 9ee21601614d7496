#include "conntrack/socket.h"

#include <linux/netfilter/nfnetlink.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "codec/attr.h"
#include "codec/message_decoder.h"

namespace nftp {

namespace {

// Room for the errors of a batch of deletions.
constexpr size_t kReplyBuffer = 1 << 20;
// The kernel answers within the system call that asks, so after this long no answer will come.
constexpr int kPatienceMs = 10'000;

}  // namespace

Failure ConntrackFailure(int error) {
  if (error == EPROTONOSUPPORT || error == EAFNOSUPPORT || error == ECONNREFUSED) {
    return Failure("no-conntrack",
                   "ctnetlink: " + DescribeErrno(error) +
                       "; the kernel has no nfnetlink (CONFIG_NETFILTER_NETLINK; `modprobe nf_conntrack_netlink`)",
                   error);
  }
  return Failure::System("ctnetlink", error);
}

ConntrackSocket::ConntrackSocket(const NetNamespace& netns)
    : socket_(netns, NETLINK_NETFILTER), buffer_(kConntrackDatagram) {
  socket_.WantExtendedAcks();
  static_cast<void>(socket_.SetReceiveBuffer(kReplyBuffer));
}

void ConntrackSocket::Send(const ConntrackRequests& requests) const {
  const int error = socket_.Send(requests.data(), requests.size());
  if (error != 0) throw ConntrackFailure(error);
}

std::pair<const uint8_t*, size_t> ConntrackSocket::Receive() {
  ssize_t got;
  while ((got = socket_.Receive(buffer_.data(), buffer_.size(), MSG_DONTWAIT)) == -EAGAIN) {
    pollfd readable{socket_.fd(), POLLIN, 0};
    // A signal may interrupt the wait.
    if (poll(&readable, 1, kPatienceMs) == 0) throw Failure("system", "the kernel did not answer", ETIMEDOUT);
  }
  if (got == -ENOBUFS || got == -EMSGSIZE) {
    // A dump that runs out of memory stops there, and its end never arrives.
    throw Failure("unknown-outcome", "part of the kernel's answer was lost: " + DescribeErrno(static_cast<int>(-got)),
                  static_cast<int>(-got));
  }
  if (got < 0) throw ConntrackFailure(static_cast<int>(-got));
  return {buffer_.data(), static_cast<size_t>(got)};
}

bool ConntrackSocket::Receive(const std::function<bool(const nlmsghdr*)>& on_message) {
  const auto [bytes, length] = Receive();
  return EachConntrackMessage(bytes, length, on_message);
}

void ConntrackSocket::Answers(uint32_t last, const std::function<void(const nlmsghdr*, int)>& on_answer) {
  const auto answer = [&](const nlmsghdr* message) {
    on_answer(message, message->nlmsg_type == NLMSG_ERROR ? DecodeError(message).error : 0);
    return message->nlmsg_seq != last;
  };
  while (Receive(answer)) {
  }
}

}  // namespace nftp

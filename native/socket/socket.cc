#include "socket/socket.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <system_error>
#include <thread>
#include <utility>

#include "codec/failure.h"

namespace nftp {

Fd::Fd(int fd) : fd_(fd) {
  struct stat file {};
  if (fd_ < 0 || fstat(fd_, &file) != 0) return;
  device_ = file.st_dev;
  inode_ = file.st_ino;
}

Fd::~Fd() {
  if (valid()) close(fd_);
}

bool Fd::valid() const {
  struct stat file {};
  return fd_ >= 0 && fstat(fd_, &file) == 0 && file.st_dev == device_ && file.st_ino == inode_;
}

void Fd::swap(Fd& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
}

std::string ReadFirstLine(const char* path) {
  const Fd file(open(path, O_RDONLY | O_CLOEXEC));
  char text[256];
  const ssize_t size = read(file.get(), text, sizeof text);
  return {text, std::find(text, text + std::max<ssize_t>(size, 0), '\n')};
}

NetNamespace::NetNamespace(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)), path_(path) {
  if (!fd_.valid()) {
    const int error = errno;
    throw Failure("system", "network namespace " + path + ": " + DescribeErrno(error), error);
  }
}

Fd NetNamespace::Socket(int domain, int type, int protocol) const {
  int fd = -1;
  int error = 0;
  if (path_.empty()) {
    fd = socket(domain, type | SOCK_CLOEXEC, protocol);
    if (fd < 0) error = errno;
  } else {
    // A separate thread enters the namespace and ends there, so no thread has to return to the former namespace.
    bool entered = false;
    std::thread visitor([&] {
      if (setns(fd_.checked(), CLONE_NEWNET) != 0) {
        error = errno;
        return;
      }
      entered = true;
      fd = socket(domain, type | SOCK_CLOEXEC, protocol);
      if (fd < 0) error = errno;
    });
    visitor.join();
    if (!entered) {
      const char* code = error == EPERM ? "no-permission" : "system";
      throw Failure(code,
                    "cannot enter the network namespace " + path_ + ": " + DescribeErrno(error) +
                        (error == EPERM ? "; CAP_SYS_ADMIN is missing (run as root)" : ""),
                    error);
    }
  }
  if (fd < 0) throw Failure::System(domain == AF_NETLINK ? "netlink socket" : "socket", error);
  return Fd(fd);
}

NetlinkSocket::NetlinkSocket(const NetNamespace& ns, int protocol) : fd_(ns.Socket(AF_NETLINK, SOCK_RAW, protocol)) {
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  socklen_t length = sizeof address;
  if (bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw Failure::System("netlink socket", errno);
  }
  port_id_ = address.nl_pid;
}

void NetlinkSocket::WantExtendedAcks() const {
  // Linux >= 4.12 has both. Otherwise errors come without text, followed by the request; DecodeError reads either form.
  const int on = 1;
  static_cast<void>(setsockopt(fd(), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on));
  static_cast<void>(setsockopt(fd(), SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on));
}

void NetlinkSocket::Join(int group, const char* what) const {
  if (setsockopt(fd(), SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) != 0) {
    throw Failure::System(std::string("subscription to ") + what, errno);
  }
}

bool NetlinkSocket::Leave(int group) const {
  return setsockopt(fd(), SOL_NETLINK, NETLINK_DROP_MEMBERSHIP, &group, sizeof group) == 0;
}

namespace {

size_t SetBuffer(int fd, int force, int plain, size_t bytes) {
  // The kernel doubles the number and keeps it in an int.
  const int value = static_cast<int>(std::min<size_t>(bytes, INT_MAX / 2));
  if (setsockopt(fd, SOL_SOCKET, force, &value, sizeof value) != 0) {
    // Without CAP_NET_ADMIN in the first user namespace, the size is capped at net.core.wmem_max or rmem_max.
    static_cast<void>(setsockopt(fd, SOL_SOCKET, plain, &value, sizeof value));
  }
  int now = 0;
  socklen_t length = sizeof now;
  if (getsockopt(fd, SOL_SOCKET, plain, &now, &length) != 0) throw Failure::System("socket buffer", errno);
  return static_cast<size_t>(now);
}

}  // namespace

size_t NetlinkSocket::SetSendBuffer(size_t bytes) const { return SetBuffer(fd(), SO_SNDBUFFORCE, SO_SNDBUF, bytes); }

size_t NetlinkSocket::SetReceiveBuffer(size_t bytes) const { return SetBuffer(fd(), SO_RCVBUFFORCE, SO_RCVBUF, bytes); }

int NetlinkSocket::Send(const void* data, size_t length) const {
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  iovec piece{const_cast<void*>(data), length};
  msghdr message{};
  message.msg_name = &kernel;
  message.msg_namelen = sizeof kernel;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  for (;;) {
    if (sendmsg(fd(), &message, 0) >= 0) return 0;
    // The call was interrupted before the kernel took the message: netlink handles a message within the call or not at
    // all.
    if (errno != EINTR) return errno;
  }
}

ssize_t NetlinkSocket::Receive(void* buffer, size_t length, int flags) const {
  for (;;) {
    sockaddr_nl from{};
    iovec piece{buffer, length};
    msghdr message{};
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    const ssize_t got = recvmsg(fd(), &message, flags);
    if (got < 0) {
      if (errno == EINTR) continue;
      return -errno;
    }
    if ((message.msg_flags & MSG_TRUNC) != 0) return -EMSGSIZE;
    // Port 0 is the kernel; any process may send to our port.
    if (from.nl_pid != 0) continue;
    return got;
  }
}

int NetlinkSocket::ReceiveReady(uint8_t* buffer, size_t room, std::array<ssize_t, kMostAtOnce>* lengths) const {
  std::array<sockaddr_nl, kMostAtOnce> from{};
  std::array<iovec, kMostAtOnce> pieces{};
  std::array<mmsghdr, kMostAtOnce> messages{};
  for (size_t i = 0; i < kMostAtOnce; ++i) {
    pieces[i] = {buffer + i * room, room};
    msghdr& header = messages[i].msg_hdr;
    header.msg_name = &from[i];
    header.msg_namelen = sizeof from[i];
    header.msg_iov = &pieces[i];
    header.msg_iovlen = 1;
  }
  int got = 0;
  do {
    got = recvmmsg(fd(), messages.data(), kMostAtOnce, MSG_DONTWAIT, nullptr);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return -errno;
  for (size_t i = 0; i < static_cast<size_t>(got); ++i) {
    if ((messages[i].msg_hdr.msg_flags & MSG_TRUNC) != 0) {
      (*lengths)[i] = -EMSGSIZE;
    } else {
      (*lengths)[i] = from[i].nl_pid != 0 ? 0 : static_cast<ssize_t>(messages[i].msg_len);
    }
  }
  return got;
}

}  // namespace nftp

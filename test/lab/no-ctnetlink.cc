// A library to preload (LD_PRELOAD) into a program, so that it finds a kernel without ctnetlink: requests to that
// subsystem go to one that no kernel has. The answer is the kernel's own, as for any subsystem whose module is missing.
#include <dlfcn.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr uint16_t kNoSubsystem = 0xfe;

bool IsNetfilter(int fd) {
  int protocol = 0;
  socklen_t length = sizeof protocol;
  int domain = 0;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_NETLINK &&
         getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 && protocol == NETLINK_NETFILTER;
}

void Redirect(std::vector<uint8_t>* bytes) {
  nlmsghdr header;
  for (size_t at = 0; bytes->size() - at >= sizeof header; at += NLMSG_ALIGN(header.nlmsg_len)) {
    std::memcpy(&header, bytes->data() + at, sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > bytes->size() - at) return;
    if (NFNL_SUBSYS_ID(header.nlmsg_type) != NFNL_SUBSYS_CTNETLINK) continue;
    header.nlmsg_type = static_cast<uint16_t>(kNoSubsystem << 8 | NFNL_MSG_TYPE(header.nlmsg_type));
    std::memcpy(bytes->data() + at, &header, sizeof header);
  }
}

}  // namespace

extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  using Send = ssize_t (*)(int, const msghdr*, int);
  static const auto next = reinterpret_cast<Send>(dlsym(RTLD_NEXT, "sendmsg"));
  if (!IsNetfilter(fd)) return next(fd, message, flags);
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < message->msg_iovlen; ++i) {
    const auto* from = static_cast<const uint8_t*>(message->msg_iov[i].iov_base);
    bytes.insert(bytes.end(), from, from + message->msg_iov[i].iov_len);
  }
  Redirect(&bytes);
  iovec whole{bytes.data(), bytes.size()};
  msghdr changed = *message;
  changed.msg_iov = &whole;
  changed.msg_iovlen = 1;
  return next(fd, &changed, flags);
}

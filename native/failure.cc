#include "failure.h"

#include <cerrno>
#include <cstring>

namespace nftp {

namespace {
// Linux's own numbers that netfilter lets through and the C library has no text for.
constexpr int kENotSupp = 524;
}  // namespace

std::string DescribeErrno(int error) {
  if (error == kENotSupp) return "ENOTSUPP (operation not supported)";
  const char* name = strerrorname_np(error);
  const char* text = strerrordesc_np(error);
  if (name == nullptr || text == nullptr) return "error " + std::to_string(error);
  return std::string(name) + " (" + text + ")";
}

Failure Failure::System(const std::string& what, int error) {
  switch (error) {
    case EPERM:
    case EACCES:
      return Failure("no-permission",
                     what + ": " + DescribeErrno(error) +
                         "; CAP_NET_ADMIN in the network namespace's user namespace is missing (run as root)",
                     error);
    case EPROTONOSUPPORT:
    case EAFNOSUPPORT:
    case ECONNREFUSED:
      return Failure("no-nftables",
                     what + ": " + DescribeErrno(error) +
                         "; the kernel has no nfnetlink (CONFIG_NETFILTER_NETLINK, CONFIG_NF_TABLES)",
                     error);
    default:
      return Failure("system", what + ": " + DescribeErrno(error), error);
  }
}

}  // namespace nftp

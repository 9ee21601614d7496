#include "codec/failure.h"

#include <cerrno>
#include <system_error>

namespace nftp {

namespace {
// Linux-specific error numbers that netfilter returns and the C library has no text for.
constexpr int kENotSupp = 524;

// Errors that system calls, netlink and netfilter return. Only glibc has a function for it, strerrorname_np.
#define NAMED(error) \
  { error, #error }
constexpr struct {
  int error;
  const char* name;
} kNames[] = {
    NAMED(EPERM),        NAMED(ENOENT),       NAMED(ESRCH),           NAMED(EINTR),           NAMED(EIO),
    NAMED(ENXIO),        NAMED(E2BIG),        NAMED(ENOEXEC),         NAMED(EBADF),           NAMED(ECHILD),
    NAMED(EAGAIN),       NAMED(ENOMEM),       NAMED(EACCES),          NAMED(EFAULT),          NAMED(ENOTBLK),
    NAMED(EBUSY),        NAMED(EEXIST),       NAMED(EXDEV),           NAMED(ENODEV),          NAMED(ENOTDIR),
    NAMED(EISDIR),       NAMED(EINVAL),       NAMED(ENFILE),          NAMED(EMFILE),          NAMED(ENOTTY),
    NAMED(EFBIG),        NAMED(ENOSPC),       NAMED(ESPIPE),          NAMED(EROFS),           NAMED(EMLINK),
    NAMED(EPIPE),        NAMED(EDOM),         NAMED(ERANGE),          NAMED(EDEADLK),         NAMED(ENAMETOOLONG),
    NAMED(ENOLCK),       NAMED(ENOSYS),       NAMED(ENOTEMPTY),       NAMED(ELOOP),           NAMED(ENOMSG),
    NAMED(ENODATA),      NAMED(ETIME),        NAMED(EPROTO),          NAMED(EBADMSG),         NAMED(EOVERFLOW),
    NAMED(EILSEQ),       NAMED(EUSERS),       NAMED(ENOTSOCK),        NAMED(EDESTADDRREQ),    NAMED(EMSGSIZE),
    NAMED(EPROTOTYPE),   NAMED(ENOPROTOOPT),  NAMED(EPROTONOSUPPORT), NAMED(ESOCKTNOSUPPORT), NAMED(EOPNOTSUPP),
    NAMED(EPFNOSUPPORT), NAMED(EAFNOSUPPORT), NAMED(EADDRINUSE),      NAMED(EADDRNOTAVAIL),   NAMED(ENETDOWN),
    NAMED(ENETUNREACH),  NAMED(ENETRESET),    NAMED(ECONNABORTED),    NAMED(ECONNRESET),      NAMED(ENOBUFS),
    NAMED(EISCONN),      NAMED(ENOTCONN),     NAMED(ESHUTDOWN),       NAMED(ETIMEDOUT),       NAMED(ECONNREFUSED),
    NAMED(EHOSTDOWN),    NAMED(EHOSTUNREACH), NAMED(EALREADY),        NAMED(EINPROGRESS),     NAMED(ESTALE),
    NAMED(EDQUOT),       NAMED(ECANCELED),    NAMED(ERESTART)};
#undef NAMED
}  // namespace

std::string DescribeErrno(int error) {
  if (error == kENotSupp) return "ENOTSUPP (operation not supported)";
  for (const auto& known : kNames) {
    if (known.error == error) return std::string(known.name) + " (" + std::generic_category().message(error) + ")";
  }
  return "error " + std::to_string(error);
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

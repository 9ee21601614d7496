// Simulates, on request, what the kernel, signals and other threads may do to a program's netlink sockets. As a library
// loaded before Node (LD_PRELOAD), it intercepts the C library's calls; loaded again as an addon, it takes orders. It
// affects only NETLINK_NETFILTER sockets and poll().
#include <dlfcn.h>
#include <linux/netlink.h>
#include <node_api.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <utility>

namespace {

// kLook is fstat, which is counted and passes.
enum Call : uint32_t { kSend, kReceive, kPoll, kLook, kCalls };

// Result of an intercepted call.
enum Fate : uint32_t {
  kFails,      // fails with the errno; nothing was done
  kLoses,      // a datagram is received and discarded, and the errno is returned
  kTruncates,  // received into too small a buffer
};

struct Order {
  std::atomic<int> skip{0};
  std::atomic<int> count{0};
  std::atomic<int> error{0};
  std::atomic<uint32_t> fate{kFails};
  std::atomic<int> met{0};
};

Order orders[kCalls];

// Decrements a counter that is not yet 0.
bool TakeOne(std::atomic<int>* counter) {
  int value = counter->load();
  while (value > 0) {
    if (counter->compare_exchange_weak(value, value - 1)) return true;
  }
  return false;
}

bool IsMet(Call call) {
  Order& order = orders[call];
  if (order.count.load() == 0 || TakeOne(&order.skip) || !TakeOne(&order.count)) return false;
  ++order.met;
  return true;
}

bool IsNetfilter(int fd) {
  const int before = errno;
  int domain = 0;
  int protocol = 0;
  socklen_t length = sizeof domain;
  const bool known = getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 &&
                     getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0;
  errno = before;
  return known && domain == AF_NETLINK && protocol == NETLINK_NETFILTER;
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

ssize_t Fail(Call call) {
  errno = orders[call].error.load();
  return -1;
}

// order(call, fate, errno, skip, count): of the calls from now on, the first `skip` pass, and the next `count` are
// affected.
napi_value SetOrder(napi_env env, napi_callback_info info) {
  size_t count = 5;
  napi_value arguments[5];
  uint32_t numbers[5] = {};
  napi_get_cb_info(env, info, &count, arguments, nullptr, nullptr);
  for (size_t i = 0; i < count; ++i) napi_get_value_uint32(env, arguments[i], &numbers[i]);
  Order& order = orders[numbers[0] % kCalls];
  order.count = 0;
  order.fate = numbers[1];
  order.error = static_cast<int>(numbers[2]);
  order.skip = static_cast<int>(numbers[3]);
  order.met = 0;
  order.count = static_cast<int>(numbers[4]);
  return nullptr;
}

// met(call): returns the number of calls that the last order affected.
napi_value Met(napi_env env, napi_callback_info info) {
  size_t count = 1;
  napi_value argument = nullptr;
  uint32_t call = 0;
  napi_get_cb_info(env, info, &count, &argument, nullptr, nullptr);
  napi_get_value_uint32(env, argument, &call);
  napi_value result = nullptr;
  napi_create_int32(env, orders[call % kCalls].met.load(), &result);
  return result;
}

void Add(napi_env env, napi_value exports, const char* name, napi_callback function) {
  napi_value value = nullptr;
  napi_create_function(env, name, NAPI_AUTO_LENGTH, function, nullptr, &value);
  napi_set_named_property(env, exports, name, value);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static const auto next = Next<ssize_t (*)(int, const msghdr*, int)>("sendmsg");
  if (orders[kSend].count.load() > 0 && IsNetfilter(fd) && IsMet(kSend)) return Fail(kSend);
  return next(fd, message, flags);
}

__attribute__((visibility("default"))) ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static const auto next = Next<ssize_t (*)(int, msghdr*, int)>("recvmsg");
  if (orders[kReceive].count.load() == 0 || !IsNetfilter(fd)) return next(fd, message, flags);
  const uint32_t fate = orders[kReceive].fate.load();
  if (fate == kFails) return IsMet(kReceive) ? Fail(kReceive) : next(fd, message, flags);
  // Receive a datagram first, so that there is something to lose.
  const size_t room = message->msg_iov[0].iov_len;
  const socklen_t name = message->msg_namelen;
  ssize_t got = next(fd, message, flags | MSG_PEEK);
  message->msg_namelen = name;
  if (got < 0 || !IsMet(kReceive)) return next(fd, message, flags);
  if (fate == kTruncates) message->msg_iov[0].iov_len = 8;
  got = next(fd, message, flags);
  message->msg_iov[0].iov_len = room;
  return fate == kLoses ? Fail(kReceive) : got;
}

// Receives one by one, as above.
__attribute__((visibility("default"))) int recvmmsg(int fd, mmsghdr* messages, unsigned int count, int flags,
                                                    timespec*) {
  // The kernel keeps an error that follows the first datagram for the next call.
  static thread_local int kept = 0;
  if (kept != 0) {
    errno = std::exchange(kept, 0);
    return -1;
  }
  for (unsigned int i = 0; i < count; ++i) {
    const ssize_t got = recvmsg(fd, &messages[i].msg_hdr, flags);
    if (got < 0 && i == 0) return -1;
    if (got < 0) {
      if (errno != EAGAIN) kept = errno;
      return static_cast<int>(i);
    }
    messages[i].msg_len = static_cast<unsigned int>(got);
  }
  return static_cast<int>(count);
}

__attribute__((visibility("default"))) int poll(pollfd* fds, nfds_t count, int timeout) {
  static const auto next = Next<int (*)(pollfd*, nfds_t, int)>("poll");
  if (orders[kPoll].count.load() > 0 && count > 0 && IsMet(kPoll)) return static_cast<int>(Fail(kPoll));
  return next(fds, count, timeout);
}

// The name of fstat() in programs with 64-bit file offsets, such as Node.
__attribute__((visibility("default"))) int fstat64(int fd, struct stat64* file) {
  static const auto next = Next<int (*)(int, struct stat64*)>("fstat64");
  if (orders[kLook].count.load() > 0 && IsNetfilter(fd)) static_cast<void>(IsMet(kLook));
  return next(fd, file);
}

}  // extern "C"

NAPI_MODULE_INIT() {
  Add(env, exports, "order", SetOrder);
  Add(env, exports, "met", Met);
  return exports;
}

// One netlink socket, opened in the connection's network namespace.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace nftp {

// A file descriptor that closes itself, as long as its number still refers to the original file. Other code of the
// process may close it by mistake, and the next opened file gets the number. A check is a system call (fstat). So it is
// done once before a series of calls (a commit, a dump, the events after a wait), not before each call.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd);
  ~Fd();
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  Fd(Fd&& other) noexcept { swap(other); }
  Fd& operator=(Fd&& other) noexcept {
    swap(other);
    return *this;
  }

  // The number, or -1 if there is none. Does not check whether it still refers to our file.
  int get() const { return fd_; }
  // The number, or -1 if it refers to another file now: system calls then fail with EBADF.
  int checked() const { return valid() ? fd_ : -1; }
  // Whether there is a number that still refers to our file.
  bool valid() const;

 private:
  void swap(Fd& other) noexcept;
  int fd_ = -1;
  // Identity of the file from fstat(2). Each socket has its own inode.
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// Returns the first line of a short file such as a sysctl, without the newline, or nothing if it cannot be read. File
// streams would bring the C++ library's locales into the addon.
std::string ReadFirstLine(const char* path);

// An open network namespace. The default is that of the caller.
class NetNamespace {
 public:
  NetNamespace() = default;
  // Takes a path such as /run/netns/name or /proc/PID/ns/net. Throws Failure.
  explicit NetNamespace(const std::string& path);

  // Opens a socket in that namespace. Throws Failure, also if other code has closed the namespace's descriptor.
  Fd Socket(int domain, int type, int protocol) const;

 private:
  Fd fd_;
  std::string path_;
};

class NetlinkSocket {
 public:
  // Binds to a port that the kernel chooses; `groups` is the mask for bind. Throws Failure.
  NetlinkSocket(const NetNamespace& ns, int protocol);

  int fd() const { return fd_.get(); }
  // False if other code has closed the descriptor, see Fd. Call it before a series of calls.
  bool alive() const { return fd_.valid(); }
  uint32_t port_id() const { return port_id_; }

  // Sets NETLINK_EXT_ACK and NETLINK_CAP_ACK: errors have a text and do not echo the request.
  void WantExtendedAcks() const;
  // Join and leave a multicast group. `what` describes its events in the error's text. Join throws Failure; Leave
  // returns false on failure.
  void Join(int group, const char* what) const;
  bool Leave(int group) const;
  // Raises the buffer to `bytes`, beyond net.core.?mem_max if allowed. Returns the size that the kernel then reports.
  size_t SetSendBuffer(size_t bytes) const;
  size_t SetReceiveBuffer(size_t bytes) const;

  // Sends everything in one message. Returns the errno, or 0 for success.
  int Send(const void* data, size_t length) const;
  // Receives one datagram. Returns -errno on failure. EINTR is retried; -EMSGSIZE means that the datagram exceeds the
  // buffer.
  ssize_t Receive(void* buffer, size_t length, int flags) const;
  // Receives pending datagrams with one system call, each into `room` bytes of `buffer`. `lengths` receives each
  // length, -EMSGSIZE if it is too large, or 0 if it is not from the kernel. Returns their number (less than
  // kMostAtOnce if none is left), or -errno on failure, -EAGAIN if there are none.
  static constexpr size_t kMostAtOnce = 4;
  int ReceiveReady(uint8_t* buffer, size_t room, std::array<ssize_t, kMostAtOnce>* lengths) const;

 private:
  Fd fd_;
  uint32_t port_id_ = 0;
};

}  // namespace nftp

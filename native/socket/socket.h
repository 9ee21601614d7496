// One netlink socket, opened in the network namespace that the connection was made for.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace nftp {

// A file descriptor that closes itself, as long as its number still means the file that it was made with: other code of
// the process may close it by mistake, and the number is given to the next file that is opened. To ask is a system call
// (fstat), so it is asked once before a series of calls (a commit, a dump, the events after a wait) and not for each.
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

  // The number; -1 when there is none. Whether it still means our file is not asked.
  int get() const { return fd_; }
  // The number, or -1 when it means another file now: system calls then fail with EBADF.
  int checked() const { return valid() ? fd_ : -1; }
  // Whether there is a number that still means our file.
  bool valid() const;

 private:
  void swap(Fd& other) noexcept;
  int fd_ = -1;
  // What fstat(2) says of the file. Each socket has an inode of its own.
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// A network namespace held open. The default is the one of whoever asks.
class NetNamespace {
 public:
  NetNamespace() = default;
  // A path such as /run/netns/name or /proc/PID/ns/net. Throws Failure.
  explicit NetNamespace(const std::string& path);

  // A socket of that namespace. Throws Failure, also when other code has closed the namespace's descriptor.
  Fd Socket(int domain, int type, int protocol) const;

 private:
  Fd fd_;
  std::string path_;
};

class NetlinkSocket {
 public:
  // Bound to a port of the kernel's choice; `groups` is the mask for bind. Throws Failure.
  NetlinkSocket(const NetNamespace& ns, int protocol);

  int fd() const { return fd_.get(); }
  // False when the descriptor was closed by other code, see Fd. Ask before a series of calls.
  bool alive() const { return fd_.valid(); }
  uint32_t port_id() const { return port_id_; }

  // NETLINK_EXT_ACK and NETLINK_CAP_ACK: error texts come, requests are not echoed.
  void WantExtendedAcks() const;
  // Events of the group come, or come no more. `what` the group tells is for the error's text. Join throws Failure;
  // Leave returns false when it could not.
  void Join(int group, const char* what) const;
  bool Leave(int group) const;
  // Raises the buffer to `bytes`, past net.core.?mem_max where allowed. Returns what the kernel then says it is.
  size_t SetSendBuffer(size_t bytes) const;
  size_t SetReceiveBuffer(size_t bytes) const;

  // Sends all of it in one message. Returns the errno, 0 when it went.
  int Send(const void* data, size_t length) const;
  // One datagram; -errno on failure. EINTR is retried; a datagram larger than the buffer is -EMSGSIZE.
  ssize_t Receive(void* buffer, size_t length, int flags) const;
  // Datagrams that are there, each into `room` bytes of `buffer`, with one system call. `lengths`: of each, -EMSGSIZE
  // for one that is larger, 0 for one that is not the kernel's. Returns how many, fewer than kMostAtOnce when that is
  // all; -errno on failure, -EAGAIN when there are none.
  static constexpr size_t kMostAtOnce = 4;
  int ReceiveReady(uint8_t* buffer, size_t room, std::array<ssize_t, kMostAtOnce>* lengths) const;

 private:
  Fd fd_;
  uint32_t port_id_ = 0;
};

}  // namespace nftp

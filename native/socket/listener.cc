#include "socket/listener.h"

#include <libmnl/libmnl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace nftp {

namespace {

void Raise(const Fd& event) {
  const uint64_t one = 1;
  static_cast<void>(!write(event.checked(), &one, sizeof one));
}

}  // namespace

Listener::Listener(const NetNamespace& netns, const ListenerOptions& options)
    : options_(options),
      socket_(netns, options.protocol),
      signal_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      buffer_(new uint8_t[options.datagram]) {
  if (!signal_.valid()) throw Failure::System("eventfd", errno);
  socket_.SetReceiveBuffer(options.receive_buffer);
  Join();
}

void Listener::Join() const {
  if (!socket_.alive()) throw Failure::System(options_.what, EBADF);
  for (const int group : options_.groups) socket_.Join(group, options_.what);
}

bool Listener::Leave() const {
  if (!socket_.alive()) return false;
  for (const int group : options_.groups) {
    if (!socket_.Leave(group)) return false;
  }
  return true;
}

void Listener::Start(Handlers handlers) {
  handlers_ = std::move(handlers);
  thread_ = std::thread([this] { Run(); });
}

void Listener::Stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  Raise(signal_);
  thread_.join();
}

void Listener::Do(std::function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  Raise(signal_);
}

// Returns false if the thread must end.
bool Listener::Signalled() {
  uint64_t count;
  static_cast<void>(!read(signal_.checked(), &count, sizeof count));
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return false;
    tasks = std::exchange(tasks_, {});
  }
  for (const auto& task : tasks) task();
  return true;
}

// Returns false if the thread must end.
bool Listener::ReadAll() {
  // Once a message does not fit, the kernel also drops all others until the socket is empty, and reports only the first
  // drop (NETLINK_S_CONGESTED). A dump made at that report may lack the later changes.
  bool congested = false;
  for (;;) {
    const ssize_t got = socket_.Receive(buffer_.get(), options_.datagram, MSG_DONTWAIT);
    if (got == -EAGAIN) {
      if (congested) handlers_.lost();
      return true;
    }
    if (got == -ENOBUFS || got == -EMSGSIZE) {
      congested |= got == -ENOBUFS;
      handlers_.lost();
      continue;
    }
    if (got < 0) {
      handlers_.failed(Failure::System(options_.what, static_cast<int>(-got)));
      return false;
    }
    int left = static_cast<int>(got);
    for (auto* message = reinterpret_cast<const nlmsghdr*>(buffer_.get()); mnl_nlmsg_ok(message, left);
         message = mnl_nlmsg_next(message, &left)) {
      try {
        handlers_.message(message);
      } catch (const Failure&) {
        // An unreadable message is a change that we missed.
        handlers_.lost();
      }
    }
    // Check here as well, so that a steady stream of messages does not delay a stop.
    pollfd signal{signal_.get(), POLLIN, 0};
    if (poll(&signal, 1, 0) > 0 && !Signalled()) return false;
  }
}

void Listener::Run() {
  pthread_setname_np(pthread_self(), options_.thread);
  for (;;) {
    pollfd fds[] = {{signal_.get(), POLLIN, 0}, {socket_.fd(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return handlers_.failed(Failure::System(options_.what, errno));
    }
    // Other code may have closed the descriptors meanwhile.
    if (fds[0].revents != 0 && !signal_.valid()) return handlers_.failed(Failure::System(options_.what, EBADF));
    if (fds[0].revents != 0 && !Signalled()) return;
    if (!socket_.alive()) return handlers_.failed(Failure::System(options_.what, EBADF));
    if (!ReadAll()) return;
  }
}

}  // namespace nftp

#include "listener.h"

#include <libmnl/libmnl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace nftp {

Listener::Listener(const NetNamespace& netns, const ListenerOptions& options)
    : options_(options),
      socket_(netns, options.protocol),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      buffer_(options.datagram) {
  if (!stop_.valid()) throw Failure::System("eventfd", errno);
  socket_.SetReceiveBuffer(options.receive_buffer);
  for (const int group : options.groups) socket_.Join(group, options.what);
}

void Listener::Start(Handlers handlers) {
  handlers_ = std::move(handlers);
  thread_ = std::thread([this] { Run(); });
}

void Listener::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  static_cast<void>(!write(stop_.get(), &one, sizeof one));
  thread_.join();
}

// False when the thread is to end.
bool Listener::ReadAll() {
  for (;;) {
    const ssize_t got = socket_.Receive(buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got == -EAGAIN) return true;
    if (got == -ENOBUFS || got == -EMSGSIZE) {
      handlers_.lost();
      continue;
    }
    if (got < 0) {
      handlers_.failed(Failure::System(options_.what, static_cast<int>(-got)));
      return false;
    }
    int left = static_cast<int>(got);
    for (auto* message = reinterpret_cast<const nlmsghdr*>(buffer_.data()); mnl_nlmsg_ok(message, left);
         message = mnl_nlmsg_next(message, &left)) {
      try {
        handlers_.message(message);
      } catch (const Failure&) {
        // A message that we cannot read is a change that we do not know.
        handlers_.lost();
      }
    }
    // A stop is not kept waiting by a steady stream.
    pollfd stop{stop_.get(), POLLIN, 0};
    if (poll(&stop, 1, 0) > 0) return false;
  }
}

void Listener::Run() {
  pthread_setname_np(pthread_self(), options_.thread);
  for (;;) {
    pollfd fds[] = {{stop_.get(), POLLIN, 0}, {socket_.fd(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return handlers_.failed(Failure::System(options_.what, errno));
    }
    if (fds[0].revents != 0) return;
    if (!ReadAll()) return;
  }
}

}  // namespace nftp

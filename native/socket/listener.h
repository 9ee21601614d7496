// A netlink socket for multicast groups, read on a thread of its own.
#pragma once

#include <linux/netlink.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "codec/failure.h"
#include "socket/socket.h"

namespace nftp {

struct ListenerOptions {
  int protocol = 0;
  std::vector<int> groups;
  size_t receive_buffer = 0;  // bytes
  size_t datagram = 0;        // room for the largest one, bytes
  const char* what = "";      // in errors: "nf_tables events"
  const char* thread = "";    // at most 15 characters
};

// Monitors hand this out if events are missing or have ended.
struct EventsLost {};
struct MonitorFailed {
  Failure failure;
};

class Listener {
 public:
  // Called on the thread. A Failure that `message` throws counts as a lost message.
  struct Handlers {
    std::function<void(const nlmsghdr*)> message;
    // The kernel dropped messages, or one could not be read.
    std::function<void()> lost;
    // The socket is unusable, and the thread has ended.
    std::function<void(Failure)> failed;
  };

  // Subscribes before the constructor returns. Throws Failure.
  Listener(const NetNamespace& netns, const ListenerOptions& options);
  ~Listener() { Stop(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void Start(Handlers handlers);
  // Ends the thread and waits for it. No handler is called afterwards.
  void Stop();

  // Leaves the groups, so that the kernel need not send anything. Returns false on failure. Any thread may call it.
  bool Leave() const;
  // Rejoins the groups. Any thread may call it. Throws Failure.
  void Join() const;
  // Runs a task on the thread, unless that has ended. Any thread may call it.
  void Do(std::function<void()> task);

 private:
  void Run();
  bool ReadAll();
  bool Signalled();

  const ListenerOptions options_;
  const NetlinkSocket socket_;
  // Readable when the thread must end or has tasks.
  const Fd signal_;
  Handlers handlers_;
  // Without values, because few datagrams are long: the memory that they do not reach is never used.
  const std::unique_ptr<uint8_t[]> buffer_;
  std::thread thread_;
  std::mutex mutex_;
  bool stopping_ = false;
  std::vector<std::function<void()>> tasks_;
};

}  // namespace nftp

// A netlink socket that multicast groups send to, read on a thread of its own.
#pragma once

#include <linux/netlink.h>

#include <cstddef>
#include <cstdint>
#include <functional>
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

// What monitors hand out where events are missing, or have ended.
struct EventsLost {};
struct MonitorFailed {
  Failure failure;
};

class Listener {
 public:
  // Called on the thread. A Failure that `message` throws is a message lost.
  struct Handlers {
    std::function<void(const nlmsghdr*)> message;
    // The kernel dropped messages, or one could not be read.
    std::function<void()> lost;
    // The socket is of no more use, and the thread has ended.
    std::function<void(Failure)> failed;
  };

  // Subscribed when the constructor returns. Throws Failure.
  Listener(const NetNamespace& netns, const ListenerOptions& options);
  ~Listener() { Stop(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void Start(Handlers handlers);
  // Ends the thread and waits for it. No handler is called behind this.
  void Stop();

  // Takes part in its groups no more, so that nothing need be sent to it; false when that cannot be. From any thread.
  bool Leave() const;
  // Takes part in them again. From any thread. Throws Failure.
  void Join() const;
  // Runs something on the thread; never, if it has ended. From any thread.
  void Do(std::function<void()> task);

 private:
  void Run();
  bool ReadAll();
  bool Signalled();

  const ListenerOptions options_;
  const NetlinkSocket socket_;
  // Readable when there is something to do: the end, or tasks.
  const Fd signal_;
  Handlers handlers_;
  std::vector<uint8_t> buffer_;
  std::thread thread_;
  std::mutex mutex_;
  bool stopping_ = false;
  std::vector<std::function<void()>> tasks_;
};

}  // namespace nftp

// Reports created and destroyed entries, on a thread of its own.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "conntrack/record.h"
#include "socket/event_queue.h"
#include "socket/listener.h"

namespace nftp {

struct ConntrackMonitorOptions {
  bool created = false;
  bool destroyed = false;
  size_t receive_buffer = 0;  // bytes; 0: a few MiB
};

class ConntrackMonitor {
 public:
  // Subscribes before the constructor returns. Throws Failure.
  ConntrackMonitor(const NetNamespace& netns, const ConntrackMonitorOptions& options);
  ~ConntrackMonitor() { Stop(); }
  ConntrackMonitor(const ConntrackMonitor&) = delete;
  ConntrackMonitor& operator=(const ConntrackMonitor&) = delete;

  // Calls `wake` on the monitor's thread when the queue becomes non-empty. Take() calls it, too.
  void Start(std::function<void()> wake);
  // Returns at most one item, so that the event loop gets a turn before the next; `wake` announces that one. Each
  // record's `event` says what happened to the entry.
  std::vector<EventQueue<ConntrackRecord>::Item> Take() { return queue_.Take(); }
  // Ends the thread and waits for it. wake() is not called afterwards. Call it on the thread that calls Take().
  void Stop() {
    queue_.Stop();
    listener_.Stop();
  }

 private:
  void Add(const nlmsghdr* message);

  EventQueue<ConntrackRecord> queue_;
  Listener listener_;
};

}  // namespace nftp

// Entries that come and go, on a thread of its own.
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
  // Subscribed when the constructor returns. Throws Failure.
  ConntrackMonitor(const NetNamespace& netns, const ConntrackMonitorOptions& options);
  ~ConntrackMonitor() { Stop(); }
  ConntrackMonitor(const ConntrackMonitor&) = delete;
  ConntrackMonitor& operator=(const ConntrackMonitor&) = delete;

  // `wake` is called, on the monitor's thread, when items are there to take and none were before; and by Take().
  void Start(std::function<void()> wake);
  // At most one item: the event loop gets its turn before the next, for which `wake` is called.
  // Each record's `event` says what became of the entry.
  std::vector<EventQueue<ConntrackRecord>::Item> Take() { return queue_.Take(); }
  // Ends the thread and waits for it. No wake() behind this. On the thread that takes.
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

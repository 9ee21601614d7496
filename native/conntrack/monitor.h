// Entries that come and go, on a thread of its own.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <variant>
#include <vector>

#include "conntrack/record.h"
#include "socket/listener.h"
#include "socket/monitor.h"

namespace nftp {

// Some events in their order; each record's `event` says which.
struct ConntrackEvents {
  ConntrackRecords records;
};
using ConntrackItem = std::variant<ConntrackEvents, EventsLost, MonitorFailed>;

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
  std::vector<ConntrackItem> Take();
  // Ends the thread and waits for it. No wake() behind this. On the thread that takes.
  void Stop() {
    stopped_ = true;
    listener_.Stop();
  }

 private:
  void Add(const nlmsghdr* message);
  bool Queue(const ConntrackRecord& record);
  void Push(ConntrackItem item);

  std::function<void()> wake_;
  std::mutex mutex_;
  std::deque<ConntrackItem> items_;
  size_t queued_ = 0;
  bool stopped_ = false;
  Listener listener_;
};

}  // namespace nftp

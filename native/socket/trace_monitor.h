// What rules do with packets that are traced (meta nftrace), on a thread of its own.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <variant>
#include <vector>

#include "codec/trace_decoder.h"
#include "socket/listener.h"
#include "socket/monitor.h"

namespace nftp {

// Some events in their order.
struct TraceEvents {
  std::vector<TraceEvent> events;
};
using TraceItem = std::variant<TraceEvents, EventsLost, MonitorFailed>;

class TraceMonitor {
 public:
  // Subscribed when the constructor returns. A receive buffer of 0 bytes: a few MiB. Throws Failure.
  TraceMonitor(const NetNamespace& netns, size_t receive_buffer);
  ~TraceMonitor() { Stop(); }
  TraceMonitor(const TraceMonitor&) = delete;
  TraceMonitor& operator=(const TraceMonitor&) = delete;

  // `wake` is called, on the monitor's thread, when items are there to take and none were before.
  void Start(std::function<void()> wake);
  std::vector<TraceItem> Take();
  // Ends the thread and waits for it. No wake() behind this.
  void Stop() { listener_.Stop(); }

 private:
  void Add(const nlmsghdr* message);
  bool Queue(TraceEvent event);
  void Push(TraceItem item);

  std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<TraceItem> items_;
  size_t queued_ = 0;
  Listener listener_;
};

}  // namespace nftp

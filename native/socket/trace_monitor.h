// What rules do with packets that are traced (meta nftrace), on a thread of its own.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "codec/trace_decoder.h"
#include "socket/event_queue.h"
#include "socket/listener.h"

namespace nftp {

class TraceMonitor {
 public:
  // Subscribed when the constructor returns. A receive buffer of 0 bytes: a few MiB. Throws Failure.
  TraceMonitor(const NetNamespace& netns, size_t receive_buffer);
  ~TraceMonitor() { Stop(); }
  TraceMonitor(const TraceMonitor&) = delete;
  TraceMonitor& operator=(const TraceMonitor&) = delete;

  // `wake` is called, on the monitor's thread, when items are there to take and none were before; and by Take().
  void Start(std::function<void()> wake);
  // At most one item: the event loop gets its turn before the next, for which `wake` is called.
  std::vector<EventQueue<TraceEvent>::Item> Take() { return queue_.Take(); }
  // Ends the thread and waits for it. No wake() behind this. On the thread that takes.
  void Stop() {
    queue_.Stop();
    listener_.Stop();
  }

 private:
  EventQueue<TraceEvent> queue_;
  Listener listener_;
};

}  // namespace nftp

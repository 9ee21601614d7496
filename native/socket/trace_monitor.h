// Reports what rules do with traced packets (meta nftrace), on a thread of its own.
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
  // Subscribes before the constructor returns. With a receive buffer of 0 bytes, uses a few MiB. Throws Failure.
  TraceMonitor(const NetNamespace& netns, size_t receive_buffer);
  ~TraceMonitor() { Stop(); }
  TraceMonitor(const TraceMonitor&) = delete;
  TraceMonitor& operator=(const TraceMonitor&) = delete;

  // Calls `wake` on the monitor's thread when the queue becomes non-empty. Take() calls it, too.
  void Start(std::function<void()> wake);
  // Returns at most one item, so that the event loop gets a turn before the next; `wake` announces that one.
  std::vector<EventQueue<TraceEvent>::Item> Take() { return queue_.Take(); }
  // Ends the thread and waits for it. wake() is not called afterwards. Call it on the thread that calls Take().
  void Stop() {
    queue_.Stop();
    listener_.Stop();
  }

 private:
  EventQueue<TraceEvent> queue_;
  Listener listener_;
};

}  // namespace nftp

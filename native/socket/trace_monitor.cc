#include "socket/trace_monitor.h"

#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include <utility>

namespace nftp {

namespace {

// The kernel charges each message with about 1 KiB; a packet has ten to forty.
constexpr size_t kDefaultReceiveBuffer = 8 << 20;
constexpr size_t kDatagram = 1 << 14;
// Messages that wait for a stuck main thread; what comes behind them is lost.
constexpr size_t kMaxQueued = 1 << 14;

ListenerOptions TraceMessages(size_t receive_buffer) {
  ListenerOptions options;
  options.protocol = NETLINK_NETFILTER;
  options.groups = {NFNLGRP_NFTRACE};
  options.receive_buffer = receive_buffer != 0 ? receive_buffer : kDefaultReceiveBuffer;
  options.datagram = kDatagram;
  options.what = "packet traces";
  options.thread = "trace-monitor";
  return options;
}

}  // namespace

TraceMonitor::TraceMonitor(const NetNamespace& netns, size_t receive_buffer)
    : listener_(netns, TraceMessages(receive_buffer)) {}

void TraceMonitor::Start(std::function<void()> wake) {
  wake_ = std::move(wake);
  listener_.Start({
      [this](const nlmsghdr* message) { Add(message); },
      [this] { Push(EventsLost{}); },
      [this](Failure failure) { Push(MonitorFailed{std::move(failure)}); },
  });
}

void TraceMonitor::Add(const nlmsghdr* message) {
  if (message->nlmsg_type != ((NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_TRACE)) return;
  if (!Queue(DecodeTrace(message))) Push(EventsLost{});
}

// False when there is no room.
bool TraceMonitor::Queue(TraceEvent event) {
  bool first;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (queued_ >= kMaxQueued) return false;
    ++queued_;
    first = items_.empty();
    auto* last = first ? nullptr : std::get_if<TraceEvents>(&items_.back());
    if (last == nullptr) last = &std::get<TraceEvents>(items_.emplace_back(TraceEvents{}));
    last->events.push_back(std::move(event));
  }
  if (first) wake_();
  return true;
}

void TraceMonitor::Push(TraceItem item) {
  bool first;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    first = items_.empty();
    // Lost twice without a message between is lost once.
    if (!first && std::holds_alternative<EventsLost>(item) && std::holds_alternative<EventsLost>(items_.back())) return;
    items_.push_back(std::move(item));
  }
  if (first) wake_();
}

std::vector<TraceItem> TraceMonitor::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  queued_ = 0;
  return std::exchange(items_, {});
}

}  // namespace nftp

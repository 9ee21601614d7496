#include "conntrack/monitor.h"

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>

#include <utility>

#include "conntrack/codec.h"

namespace nftp {

namespace {

// The kernel charges each event with about 1 KiB.
constexpr size_t kDefaultReceiveBuffer = 8 << 20;
constexpr size_t kDatagram = 1 << 14;
// Events that wait for a stuck main thread, at 160 bytes each; what comes behind them is lost.
constexpr size_t kMaxQueued = 1 << 16;
// Events that the main thread gets in one piece.
constexpr size_t kMaxDelivered = 512;

ListenerOptions Subscription(const ConntrackMonitorOptions& options) {
  ListenerOptions listener;
  listener.protocol = NETLINK_NETFILTER;
  if (options.created) listener.groups.push_back(NFNLGRP_CONNTRACK_NEW);
  if (options.destroyed) listener.groups.push_back(NFNLGRP_CONNTRACK_DESTROY);
  listener.receive_buffer = options.receive_buffer != 0 ? options.receive_buffer : kDefaultReceiveBuffer;
  listener.datagram = kDatagram;
  listener.what = "conntrack events";
  listener.thread = "ct-monitor";
  return listener;
}

}  // namespace

ConntrackMonitor::ConntrackMonitor(const NetNamespace& netns, const ConntrackMonitorOptions& options)
    : listener_(netns, Subscription(options)) {}

void ConntrackMonitor::Start(std::function<void()> wake) {
  wake_ = std::move(wake);
  listener_.Start({
      [this](const nlmsghdr* message) { Add(message); },
      [this] { Push(EventsLost{}); },
      [this](Failure failure) { Push(MonitorFailed{std::move(failure)}); },
  });
}

void ConntrackMonitor::Add(const nlmsghdr* message) {
  if (NFNL_SUBSYS_ID(message->nlmsg_type) != NFNL_SUBSYS_CTNETLINK) return;
  ConntrackRecord record;
  if (!DecodeConntrack(message, &record)) return;
  record.event = NFNL_MSG_TYPE(message->nlmsg_type) == IPCTNL_MSG_CT_DELETE ? kEventDestroy : kEventNew;
  if (!Queue(record)) Push(EventsLost{});
}

// False when there is no room.
bool ConntrackMonitor::Queue(const ConntrackRecord& record) {
  bool first;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (queued_ >= kMaxQueued) return false;
    ++queued_;
    first = items_.empty();
    auto* last = first ? nullptr : std::get_if<ConntrackEvents>(&items_.back());
    if (last == nullptr || last->records.size() >= kMaxDelivered) {
      last = &std::get<ConntrackEvents>(items_.emplace_back(ConntrackEvents{}));
    }
    last->records.push_back(record);
  }
  if (first) wake_();
  return true;
}

void ConntrackMonitor::Push(ConntrackItem item) {
  bool first;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    first = items_.empty();
    // Lost twice without an event between is lost once.
    if (!first && std::holds_alternative<EventsLost>(item) && std::holds_alternative<EventsLost>(items_.back())) return;
    items_.push_back(std::move(item));
  }
  if (first) wake_();
}

std::vector<ConntrackItem> ConntrackMonitor::Take() {
  std::vector<ConntrackItem> taken;
  bool more;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!items_.empty()) {
      taken.push_back(std::move(items_.front()));
      items_.pop_front();
    }
    more = !items_.empty();
    if (const auto* events = taken.empty() ? nullptr : std::get_if<ConntrackEvents>(&taken.front())) {
      queued_ -= events->records.size();
    }
  }
  if (more && !stopped_) wake_();
  return taken;
}

}  // namespace nftp

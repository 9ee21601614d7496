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
// Maximum number of events that wait for a stuck main thread, at 160 bytes each.
constexpr size_t kMaxQueued = 1 << 16;

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
    : queue_(kMaxQueued), listener_(netns, Subscription(options)) {}

void ConntrackMonitor::Start(std::function<void()> wake) {
  queue_.Start(std::move(wake));
  listener_.Start({
      [this](const nlmsghdr* message) { Add(message); },
      [this] { queue_.Push(EventsLost{}); },
      [this](Failure failure) { queue_.Push(MonitorFailed{std::move(failure)}); },
  });
}

void ConntrackMonitor::Add(const nlmsghdr* message) {
  if (NFNL_SUBSYS_ID(message->nlmsg_type) != NFNL_SUBSYS_CTNETLINK) return;
  ConntrackRecord record;
  if (!DecodeConntrack(message, &record)) return;
  record.event = NFNL_MSG_TYPE(message->nlmsg_type) == IPCTNL_MSG_CT_DELETE ? kEventDestroy : kEventNew;
  queue_.Add(record);
}

}  // namespace nftp

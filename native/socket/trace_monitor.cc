#include "socket/trace_monitor.h"

#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include <utility>

namespace nftp {

namespace {

// The kernel charges each message with about 1 KiB; a packet has ten to forty messages.
constexpr size_t kTraceBuffer = 8 << 20;
constexpr size_t kTraceDatagram = 1 << 14;
// Maximum number of messages that wait for a stuck main thread.
constexpr size_t kMaxQueuedMessages = 1 << 14;

ListenerOptions TraceMessages(size_t receive_buffer) {
  ListenerOptions options;
  options.protocol = NETLINK_NETFILTER;
  options.groups = {NFNLGRP_NFTRACE};
  options.receive_buffer = receive_buffer != 0 ? receive_buffer : kTraceBuffer;
  options.datagram = kTraceDatagram;
  options.what = "packet traces";
  options.thread = "trace-monitor";
  return options;
}

}  // namespace

TraceMonitor::TraceMonitor(const NetNamespace& netns, size_t receive_buffer)
    : queue_(kMaxQueuedMessages), listener_(netns, TraceMessages(receive_buffer)) {}

void TraceMonitor::Start(std::function<void()> wake) {
  queue_.Start(std::move(wake));
  listener_.Start({
      [this](const nlmsghdr* message) {
        if (message->nlmsg_type == ((NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_TRACE)) queue_.Add(DecodeTrace(message));
      },
      [this] { queue_.Push(EventsLost{}); },
      [this](Failure failure) { queue_.Push(MonitorFailed{std::move(failure)}); },
  });
}

}  // namespace nftp

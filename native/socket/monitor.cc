#include "socket/monitor.h"

#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include <utility>

#include "codec/names.h"

namespace nftp {

namespace {

// Room for the events of a commit of half a million elements, which arrive while the kernel is still committing.
constexpr size_t kEventsBuffer = 64 << 20;
constexpr size_t kEventsDatagram = 1 << 18;
// With more items than this waiting for a stuck main thread, it must read everything again anyway.
constexpr size_t kMaxQueuedItems = 1 << 18;

ListenerOptions RulesetEvents(const MonitorOptions& options) {
  ListenerOptions listener;
  listener.protocol = NETLINK_NETFILTER;
  listener.groups = {NFNLGRP_NFTABLES};
  listener.receive_buffer = options.receive_buffer != 0 ? options.receive_buffer : kEventsBuffer;
  listener.datagram = kEventsDatagram;
  listener.what = "nf_tables events";
  listener.thread = "nft-monitor";
  return listener;
}

}  // namespace

bool ChangeGrouper::Asked(const EventView& event) const {
  if (options_.all_tables) return true;
  for (const TableRef& table : options_.tables) {
    if (table.family == event.family && table.table == event.table) return true;
  }
  return false;
}

void ChangeGrouper::Clear() {
  current_ = ChangeBatch();
  element_events_.clear();
}

bool ChangeGrouper::Add(const nlmsghdr* message, ChangeBatch* batch) {
  if (NFNL_SUBSYS_ID(message->nlmsg_type) != NFNL_SUBSYS_NFTABLES) return false;
  // Every event carries the low half of its commit's generation. If it changes without an NFT_MSG_NEWGEN, the end of
  // the previous commit was lost, and the events collected so far are not part of this commit.
  const uint16_t resource = ResourceOf(message);
  if (resource != resource_) Clear();
  resource_ = resource;
  if (NFNL_MSG_TYPE(message->nlmsg_type) == NFT_MSG_NEWGEN) {
    GenInfo generation = DecodeGen(message);
    current_.generation = generation.id;
    current_.port_id = message->nlmsg_pid;
    current_.pid = generation.pid;
    current_.process = generation.name.value_or("");
    *batch = std::move(current_);
    Clear();
    return true;
  }
  if (options_.skip_port && message->nlmsg_pid == *options_.skip_port) return false;
  EventView view;
  if (!DecodeEvent(message, &view) || !Asked(view)) return false;
  ChangeEvent event{view.kind,   view.added,   view.family, std::string(view.table), std::string(view.name),
                    view.handle, view.elements};
  if (view.kind->name == "elements") {
    // Names contain no NUL.
    const std::string key =
        (view.added ? '+' : '-') + std::to_string(view.family) + ' ' + event.table + '\0' + event.name;
    const auto [entry, added] = element_events_.try_emplace(key, current_.events.size());
    if (!added) {
      current_.events[entry->second].count += event.count;
      return false;
    }
  }
  current_.events.push_back(std::move(event));
  return false;
}

Monitor::Monitor(const NetNamespace& netns, const MonitorOptions& options)
    : skip_port_(options.skip_port), grouper_(options), listener_(netns, RulesetEvents(options)) {}

void Monitor::Start(std::function<void()> wake) {
  wake_ = std::move(wake);
  listener_.Start({
      [this](const nlmsghdr* message) { Add(message); },
      [this] { Lose(); },
      [this](Failure failure) { Push(MonitorFailed{std::move(failure)}); },
  });
}

void Monitor::ListenAgain() {
  try {
    listener_.Join();
  } catch (const Failure& failure) {
    Tell({MonitorFailed{failure}});
  }
}

void Monitor::Tell(std::vector<MonitorItem> items) {
  listener_.Do([this, items = std::move(items)]() mutable {
    for (MonitorItem& item : items) Push(std::move(item));
  });
}

std::vector<MonitorItem> Monitor::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  queued_events_ = 0;
  return std::exchange(items_, {});
}

void Monitor::Push(MonitorItem item) {
  bool first;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto* batch = std::get_if<ChangeBatch>(&item);
    queued_events_ += 1 + (batch != nullptr ? batch->events.size() : 0);
    first = items_.empty();
    if (queued_events_ > kMaxQueuedItems) {
      items_.clear();
      queued_events_ = 1;
      items_.emplace_back(EventsLost{});
    }
    items_.push_back(std::move(item));
  }
  if (first) wake_();
}

void Monitor::Lose() {
  grouper_.Clear();
  Push(EventsLost{});
}

void Monitor::Add(const nlmsghdr* message) {
  ChangeBatch batch;
  if (grouper_.Add(message, &batch)) Push(std::move(batch));
  if (grouper_.pending() > kMaxQueuedItems) Lose();
}

}  // namespace nftp

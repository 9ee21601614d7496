#include "socket/address_monitor.h"

#include <linux/rtnetlink.h>

#include <utility>

namespace nftp {

namespace {

// An address event has less than 200 bytes; the kernel charges each with about 1 KiB.
constexpr size_t kAddressesBuffer = 1 << 20;
constexpr size_t kAddressesDatagram = 1 << 15;

ListenerOptions EventsOf(Watched watched, size_t receive_buffer) {
  ListenerOptions options;
  options.protocol = NETLINK_ROUTE;
  // Addresses need no link events: the kernel also reports an address that disappears because its link is removed or
  // goes down (IPv6).
  if (watched == Watched::Addresses) {
    options.groups = {RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR};
  } else {
    options.groups = {RTNLGRP_LINK};
  }
  options.receive_buffer = receive_buffer != 0 ? receive_buffer : kAddressesBuffer;
  options.datagram = kAddressesDatagram;
  options.what = watched == Watched::Addresses ? "interface address events" : "interface events";
  options.thread = watched == Watched::Addresses ? "addr-monitor" : "link-monitor";
  return options;
}

bool Tells(uint16_t type) {
  return type == RTM_NEWADDR || type == RTM_DELADDR || type == RTM_NEWLINK || type == RTM_DELLINK;
}

}  // namespace

AddressMonitor::AddressMonitor(const NetNamespace& netns, Watched watched, size_t receive_buffer)
    : listener_(netns, EventsOf(watched, receive_buffer)) {}

void AddressMonitor::Start(std::function<void()> wake) {
  wake_ = std::move(wake);
  listener_.Start({
      [this](const nlmsghdr* message) {
        if (!Tells(message->nlmsg_type)) return;
        Note([](Pending* pending) { pending->changed = true; });
      },
      [this] { Note([](Pending* pending) { pending->lost = true; }); },
      [this](const Failure& failure) { Note([&](Pending* pending) { pending->failure = failure; }); },
  });
}

void AddressMonitor::Note(const std::function<void(Pending*)>& set) {
  bool first;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    first = !pending_.any();
    set(&pending_);
  }
  if (first) wake_();
}

std::vector<AddressItem> AddressMonitor::Take() {
  Pending taken;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    taken = std::exchange(pending_, {});
  }
  std::vector<AddressItem> items;
  if (taken.changed) items.emplace_back(AddressesChanged{});
  if (taken.lost) items.emplace_back(EventsLost{});
  if (taken.failure) items.emplace_back(MonitorFailed{*std::move(taken.failure)});
  return items;
}

}  // namespace nftp

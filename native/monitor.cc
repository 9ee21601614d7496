#include "monitor.h"

#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace nftp {

namespace {

// Events of a commit of half a million elements, which come while the kernel is still in it.
constexpr size_t kDefaultReceiveBuffer = 64 << 20;
constexpr size_t kDatagram = 1 << 18;
// More than this waiting for a stuck main thread: it has to read everything again anyway.
constexpr size_t kMaxQueued = 1 << 18;

bool IsElements(uint8_t operation) { return operation == NFT_MSG_NEWSETELEM || operation == NFT_MSG_DELSETELEM; }

}  // namespace

bool ChangeGrouper::Wanted(const EventView& event) const {
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
  const uint8_t operation = NFNL_MSG_TYPE(message->nlmsg_type);
  // Every event carries the low half of its commit's generation. When that changes without an NFT_MSG_NEWGEN, the end
  // of the commit before was lost: what is left of it is none of this commit's.
  const uint16_t resource = ResourceOf(message);
  if (resource != resource_) Clear();
  resource_ = resource;
  if (operation == NFT_MSG_NEWGEN) {
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
  if (!DecodeEvent(message, &view) || !Wanted(view)) return false;
  ChangeEvent event{operation,   view.family,  std::string(view.table), std::string(view.name),
                    view.handle, view.elements};
  if (IsElements(operation)) {
    // Names hold no NUL.
    const std::string key =
        std::to_string(operation) + ' ' + std::to_string(view.family) + ' ' + event.table + '\0' + event.name;
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
    : socket_(netns, NETLINK_NETFILTER),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      grouper_(options),
      buffer_(kDatagram) {
  if (!stop_.valid()) throw Failure::System("eventfd", errno);
  socket_.SetReceiveBuffer(options.receive_buffer != 0 ? options.receive_buffer : kDefaultReceiveBuffer);
  socket_.Join(NFNLGRP_NFTABLES);
}

void Monitor::Start(std::function<void()> wake) {
  wake_ = std::move(wake);
  thread_ = std::thread([this] { Run(); });
}

void Monitor::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  static_cast<void>(!write(stop_.get(), &one, sizeof one));
  thread_.join();
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
    if (queued_events_ > kMaxQueued) {
      items_.clear();
      queued_events_ = 1;
      items_.emplace_back(EventsLost{});
    }
    items_.push_back(std::move(item));
  }
  if (first) wake_();
}

// False when the socket is of no more use.
bool Monitor::ReadAll() {
  for (;;) {
    const ssize_t got = socket_.Receive(buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got == -EAGAIN) return true;
    if (got == -ENOBUFS || got == -EMSGSIZE) {
      grouper_.Clear();
      Push(EventsLost{});
      continue;
    }
    if (got < 0) {
      Push(MonitorFailed{Failure::System("nf_tables events", static_cast<int>(-got))});
      return false;
    }
    int left = static_cast<int>(got);
    for (auto* message = reinterpret_cast<const nlmsghdr*>(buffer_.data()); mnl_nlmsg_ok(message, left);
         message = mnl_nlmsg_next(message, &left)) {
      try {
        ChangeBatch batch;
        if (grouper_.Add(message, &batch)) Push(std::move(batch));
        if (grouper_.pending() > kMaxQueued) {
          grouper_.Clear();
          Push(EventsLost{});
        }
      } catch (const Failure&) {
        // A message that we cannot read is a change that we do not know.
        grouper_.Clear();
        Push(EventsLost{});
      }
    }
    // A stop is not kept waiting by a steady stream.
    pollfd stop{stop_.get(), POLLIN, 0};
    if (poll(&stop, 1, 0) > 0) return false;
  }
}

void Monitor::Run() {
  pthread_setname_np(pthread_self(), "nft-monitor");
  for (;;) {
    pollfd fds[] = {{stop_.get(), POLLIN, 0}, {socket_.fd(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return Push(MonitorFailed{Failure::System("nf_tables events", errno)});
    }
    if (fds[0].revents != 0) return;
    if (!ReadAll()) return;
  }
}

}  // namespace nftp

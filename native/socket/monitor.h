// Change events of nf_tables, grouped by commit, on a thread of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "codec/message_decoder.h"
#include "codec/model.h"
#include "socket/listener.h"

namespace nftp {

struct ChangeEvent {
  uint8_t operation = 0;  // NFT_MSG_*
  uint8_t family = 0;
  std::string table;
  std::string name;
  std::optional<uint64_t> handle;
  uint64_t count = 0;
};

struct ChangeBatch {
  uint32_t generation = 0;
  uint32_t port_id = 0;
  std::optional<uint32_t> pid;
  std::string process;
  std::vector<ChangeEvent> events;
};

using MonitorItem = std::variant<ChangeBatch, EventsLost, MonitorFailed>;

struct MonitorOptions {
  std::vector<TableRef> tables;  // empty: all
  bool all_tables = true;
  std::optional<uint32_t> skip_port;  // skip what this port changed
  size_t receive_buffer = 0;
};

// Puts messages together to batches. Pure.
class ChangeGrouper {
 public:
  explicit ChangeGrouper(MonitorOptions options) : options_(std::move(options)) {}

  // True when `batch` is complete with this message (an NFT_MSG_NEWGEN).
  bool Add(const nlmsghdr* message, ChangeBatch* batch);
  // Events are missing: what was collected is worth nothing.
  void Clear();
  size_t pending() const { return current_.events.size(); }

 private:
  bool Asked(const EventView& event) const;

  const MonitorOptions options_;
  ChangeBatch current_;
  uint16_t resource_ = 0;
  // Element events of a set and a direction are one event with a count: a commit may hold a million of them.
  std::unordered_map<std::string, size_t> element_events_;
};

class Monitor {
 public:
  // Subscribed when the constructor returns. Throws Failure.
  Monitor(const NetNamespace& netns, const MonitorOptions& options);
  ~Monitor() { Stop(); }
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // `wake` is called, on the monitor's thread, when items are there to take and none were before.
  void Start(std::function<void()> wake);
  std::vector<MonitorItem> Take();
  // Ends the thread and waits for it. No wake() behind this.
  void Stop() { listener_.Stop(); }

  // Whether it has no use for what this port changes.
  bool skips(uint32_t port) const { return skip_port_ == port; }
  // Listens no more, so that the kernel need not make events for it; false when that cannot be. From any thread.
  bool Leave() const { return listener_.Leave(); }
  // Listens again. From any thread.
  void ListenAgain();
  // Hands these out as if they had come from the kernel. From any thread.
  void Tell(std::vector<MonitorItem> items);

 private:
  void Add(const nlmsghdr* message);
  void Lose();
  void Push(MonitorItem item);

  const std::optional<uint32_t> skip_port_;
  ChangeGrouper grouper_;
  std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<MonitorItem> items_;
  size_t queued_events_ = 0;
  Listener listener_;
};

}  // namespace nftp

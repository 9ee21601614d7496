// Change events of nf_tables, grouped by commit, on a thread of its own.
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
  const ObjectKind* kind = nullptr;
  bool added = false;
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

// Groups messages into batches. Pure.
class ChangeGrouper {
 public:
  explicit ChangeGrouper(MonitorOptions options) : options_(std::move(options)) {}

  // Returns true if this message (an NFT_MSG_NEWGEN) completes `batch`.
  bool Add(const nlmsghdr* message, ChangeBatch* batch);
  // Discards the collected events, because others are missing.
  void Clear();
  size_t pending() const { return current_.events.size(); }

 private:
  bool Asked(const EventView& event) const;

  const MonitorOptions options_;
  ChangeBatch current_;
  uint16_t resource_ = 0;
  // Element events with the same set and direction become one event with a count: a commit may contain a million of
  // them.
  std::unordered_map<std::string, size_t> element_events_;
};

class Monitor {
 public:
  // Subscribes before the constructor returns. Throws Failure.
  Monitor(const NetNamespace& netns, const MonitorOptions& options);
  ~Monitor() { Stop(); }
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Calls `wake` on the monitor's thread when the queue becomes non-empty.
  void Start(std::function<void()> wake);
  std::vector<MonitorItem> Take();
  // Ends the thread and waits for it. wake() is not called afterwards.
  void Stop() { listener_.Stop(); }

  // Whether it skips changes of this port.
  bool skips(uint32_t port) const { return skip_port_ == port; }
  // Stops listening, so that the kernel need not create events for it. Returns false on failure. Any thread may call
  // it.
  bool Leave() const { return listener_.Leave(); }
  // Listens again. Any thread may call it.
  void ListenAgain();
  // Hands these items out as if they came from the kernel. Any thread may call it.
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

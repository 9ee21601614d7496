// Says that interface addresses or links changed, on a thread of its own. Which, is for a dump to say.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "socket/listener.h"

namespace nftp {

struct AddressesChanged {};
using AddressItem = std::variant<AddressesChanged, EventsLost, MonitorFailed>;

// Links: those that come, go or change, a name or a state of theirs.
enum class Watched : uint8_t { Addresses, Links };

class AddressMonitor {
 public:
  // Subscribed when the constructor returns. A receive buffer of 0 bytes: one that suffices. Throws Failure.
  AddressMonitor(const NetNamespace& netns, Watched watched, size_t receive_buffer);
  ~AddressMonitor() { Stop(); }
  AddressMonitor(const AddressMonitor&) = delete;
  AddressMonitor& operator=(const AddressMonitor&) = delete;

  // `wake` is called, on the monitor's thread, when items are there to take and none were before.
  void Start(std::function<void()> wake);
  // However many changes there were since the last call: one item says so.
  std::vector<AddressItem> Take();
  // Ends the thread and waits for it. No wake() behind this.
  void Stop() { listener_.Stop(); }

 private:
  struct Pending {
    bool changed = false;
    bool lost = false;
    std::optional<Failure> failure;

    bool any() const { return changed || lost || failure; }
  };
  void Note(const std::function<void(Pending*)>& set);

  std::function<void()> wake_;
  std::mutex mutex_;
  Pending pending_;
  Listener listener_;
};

}  // namespace nftp

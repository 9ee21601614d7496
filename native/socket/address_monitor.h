// Reports that interface addresses or links changed, on a thread of its own. A dump must find out which.
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

// Links: reports links that are added, removed or changed (name or state).
enum class Watched : uint8_t { Addresses, Links };

class AddressMonitor {
 public:
  // Subscribes before the constructor returns. With a receive buffer of 0 bytes, chooses a sufficient size. Throws
  // Failure.
  AddressMonitor(const NetNamespace& netns, Watched watched, size_t receive_buffer);
  ~AddressMonitor() { Stop(); }
  AddressMonitor(const AddressMonitor&) = delete;
  AddressMonitor& operator=(const AddressMonitor&) = delete;

  // Calls `wake` on the monitor's thread when the queue becomes non-empty.
  void Start(std::function<void()> wake);
  // Returns one item for any number of changes since the last call.
  std::vector<AddressItem> Take();
  // Ends the thread and waits for it. wake() is not called afterwards.
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

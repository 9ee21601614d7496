// Passes events from a monitor's thread to the thread that takes them, and marks lost events in their place.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "socket/listener.h"

namespace nftp {

template <typename Event>
class EventQueue {
 public:
  using Events = std::vector<Event>;
  using Item = std::variant<Events, EventsLost, MonitorFailed>;

  // `room`: maximum number of events that wait for a stuck main thread; further events are lost.
  explicit EventQueue(size_t room) : room_(room) {}

  // Calls `wake` when the queue becomes non-empty. Take() calls it, too.
  void Start(std::function<void()> wake) { wake_ = std::move(wake); }
  // Take() does not call wake() afterwards. Call it on the thread that calls Take().
  void Stop() { stopped_ = true; }

  void Add(Event event) {
    if (!Append(std::move(event))) Push(EventsLost{});
  }

  void Push(Item item) {
    bool first;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      first = items_.empty();
      // Two losses without an event in between count as one.
      if (!first && Is<EventsLost>(item) && Is<EventsLost>(items_.back())) return;
      items_.push_back(std::move(item));
    }
    if (first) wake_();
  }

  // Returns at most one item, so that the event loop gets a turn before the next; `wake` announces that one.
  std::vector<Item> Take() {
    std::vector<Item> taken;
    bool more;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (items_.empty()) return taken;
      taken.push_back(std::move(items_.front()));
      items_.pop_front();
      if (const auto* events = std::get_if<Events>(&taken.front())) queued_ -= events->size();
      more = !items_.empty();
    }
    if (more && !stopped_) wake_();
    return taken;
  }

 private:
  // Maximum number of events per item for the main thread.
  static constexpr size_t kMostAtOnce = 512;

  template <typename Kind>
  static bool Is(const Item& item) {
    return std::holds_alternative<Kind>(item);
  }

  // Returns false if there is no room.
  bool Append(Event event) {
    bool first;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (queued_ >= room_) return false;
      ++queued_;
      first = items_.empty();
      auto* last = first ? nullptr : std::get_if<Events>(&items_.back());
      if (last == nullptr || last->size() >= kMostAtOnce) last = &std::get<Events>(items_.emplace_back(Events{}));
      last->push_back(std::move(event));
    }
    if (first) wake_();
    return true;
  }

  const size_t room_;
  std::function<void()> wake_;
  std::mutex mutex_;
  std::deque<Item> items_;
  size_t queued_ = 0;
  bool stopped_ = false;
};

}  // namespace nftp

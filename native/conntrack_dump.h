// A dump of the conntrack table, read piece by piece: the kernel makes the next datagram when the last one is taken.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "conntrack_filter.h"
#include "conntrack_record.h"
#include "conntrack_socket.h"
#include "socket.h"

namespace nftp {

// Some datagrams of a dump as they came, the messages in them counted and not yet read.
struct ConntrackPiece {
  std::unique_ptr<uint8_t[]> bytes;
  std::vector<size_t> datagrams;  // lengths; each begins at the next multiple of 4
  // There is nothing behind this.
  bool done = false;
  // Of the dump, so far: entries that the kernel sent; whether the table changed its shape under it, so that entries
  // may be missing, or told twice.
  uint64_t seen = 0;
  bool interrupted = false;
};

// What the messages of a dump say about it. Pure.
class ConntrackProgress {
 public:
  // False: the dump is over. Throws Failure when it failed.
  bool Take(const nlmsghdr* message);

  uint64_t seen() const { return seen_; }
  bool interrupted() const { return interrupted_; }
  // The table changed its shape.
  void Interrupt() { interrupted_ = true; }

 private:
  uint64_t seen_ = 0;
  bool interrupted_ = false;
};

// Hands over what matches in a piece. Throws Failure. Pure.
void ReadConntrackPiece(const ConntrackPiece& piece, const ConntrackFilter& filter,
                        const std::function<void(const ConntrackRecord&)>& on_record);

class ConntrackDump {
 public:
  // `plain` is set when the kernel turns out not to know the filters that it was asked for; no dump asks for them then.
  ConntrackDump(const NetNamespace& netns, ConntrackFilter filter, std::atomic<bool>* plain);

  // The next entries, some 1,500 of them. One at a time: a second call waits. What the kernel writes in the meantime is
  // the time that a dump takes; who fetches on one thread and reads on another adds nothing to it. Throws Failure.
  ConntrackPiece Fetch();
  const ConntrackFilter& filter() const { return filter_; }

 private:
  void Start();

  const NetNamespace& netns_;
  const ConntrackFilter filter_;
  std::atomic<bool>* const plain_;
  std::mutex mutex_;
  std::unique_ptr<ConntrackSocket> socket_;
  bool asked_plain_ = false;
  bool done_ = false;
  ConntrackProgress progress_;
  std::string buckets_;
};

}  // namespace nftp

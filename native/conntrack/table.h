// Connection tracking of one network namespace. Every method blocks; they are meant for worker threads and may overlap.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "conntrack/codec.h"
#include "conntrack/dump.h"
#include "conntrack/filter.h"
#include "conntrack/record.h"
#include "conntrack/requests.h"
#include "conntrack/socket.h"
#include "socket/connection.h"
#include "socket/socket.h"

namespace nftp {

struct ConntrackDeletion {
  uint64_t deleted = 0;
  uint64_t absent = 0;
  bool interrupted = false;  // of the dump, where there was one
  // Where the absent ones are in the list of keys; empty where there was no list.
  std::vector<uint32_t> absent_at;
};

// What the failure of the first request means: a kernel without ctnetlink has no error of its own for that. Pure.
Failure ConntrackOpenFailure(const Failure& failure);

class ConntrackTable {
 public:
  // Throws Failure when the kernel has no ctnetlink or lets us not use it.
  explicit ConntrackTable(const ConnectionOptions& options);

  const NetNamespace& netns() const { return netns_; }
  const ConnectionOptions& options() const { return options_; }

  ConntrackTotals Totals();
  ConntrackCounts Counts();
  // By its original tuple.
  std::optional<ConntrackRecord> Lookup(const ConntrackRecord& key);
  void Create(const ConntrackRecord& entry);
  // By original tuple and id. ENOENT when there is no such entry.
  void Change(const ConntrackRecord& key, const ConntrackChange& change);
  // By original tuple and id.
  ConntrackDeletion Delete(const ConntrackRecords& keys);
  ConntrackDeletion DeleteMatching(const ConntrackFilter& filter);
  // A dump to read from. It must not outlive this table.
  std::unique_ptr<ConntrackDump> Dump(const ConntrackFilter& filter);

 private:
  // Sends a request with sequence number kSeq and hands over its answer. Returns the errno that it is, 0: none.
  int Ask(const ConntrackRequests& requests, const std::function<void(const nlmsghdr*)>& on_answer);
  void Acknowledged(const ConntrackRequests& requests);

  static constexpr uint32_t kSeq = 1;

  const ConnectionOptions options_;
  const NetNamespace netns_;
  ConntrackSockets sockets_;
  std::atomic<bool> plain_dumps_{false};
};

}  // namespace nftp

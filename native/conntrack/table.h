// Connection tracking of one network namespace. Every method blocks; call them on worker threads. They may overlap.
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
  bool interrupted = false;  // of the dump, if there was one
  // Positions of absent entries in the list of keys, if there was one.
  std::optional<std::vector<uint32_t>> absent_at;
};

// Interprets the failure of the first request: a kernel without ctnetlink has no error of its own for that. Pure.
Failure ConntrackOpenFailure(const Failure& failure);

class ConntrackTable {
 public:
  // Throws Failure if the kernel has no ctnetlink or denies access to it.
  explicit ConntrackTable(const ConnectionOptions& options);

  const NetNamespace& netns() const { return netns_; }
  const ConnectionOptions& options() const { return options_; }

  ConntrackTotals Totals();
  ConntrackCounts Counts();
  // Looks up by original tuple.
  std::optional<ConntrackRecord> Lookup(const ConntrackRecord& key);
  void Create(const ConntrackRecord& entry);
  // Changes by original tuple and id. ENOENT if the entry does not exist.
  void Change(const ConntrackRecord& key, const ConntrackChange& change);
  // Deletes by original tuple and id.
  ConntrackDeletion Delete(const ConntrackRecords& keys);
  ConntrackDeletion DeleteMatching(const ConntrackFilter& filter);
  // Starts a dump, which must not outlive this table.
  std::unique_ptr<ConntrackDump> Dump(const ConntrackFilter& filter);

 private:
  // Sends a request with sequence number kSeq and passes on its answer. Returns its errno, or 0 for success.
  int Ask(const ConntrackRequests& requests, const std::function<void(const nlmsghdr*)>& on_answer);
  void Acknowledged(const ConntrackRequests& requests);

  static constexpr uint32_t kSeq = 1;

  const ConnectionOptions options_;
  const NetNamespace netns_;
  ConntrackSockets sockets_;
  std::atomic<bool> plain_dumps_{false};
};

}  // namespace nftp

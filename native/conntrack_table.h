// Connection tracking of one network namespace. Every method blocks; they are meant for worker threads and may overlap.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "connection.h"
#include "conntrack_codec.h"
#include "conntrack_dump.h"
#include "conntrack_filter.h"
#include "conntrack_record.h"
#include "conntrack_requests.h"
#include "conntrack_socket.h"
#include "socket.h"

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
  std::optional<ConntrackRecord> Get(const ConntrackRecord& key);
  void Acknowledged(const ConntrackRequests& requests);

  const ConnectionOptions options_;
  const NetNamespace netns_;
  ConntrackSockets sockets_;
  std::atomic<bool> plain_dumps_{false};
  // Of the socket that asks for single entries.
  std::mutex mutex_;
  ConntrackSocket socket_;
  uint32_t seq_ = 0;
};

}  // namespace nftp

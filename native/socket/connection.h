// A connection to nf_tables of one network namespace: one socket that commits, and a socket of its own for each dump.
// Every method blocks; they are meant for worker threads and may overlap.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "codec/batch.h"
#include "codec/element_codec.h"
#include "codec/model.h"
#include "socket/carried_counts.h"
#include "socket/dump.h"
#include "socket/monitor.h"
#include "socket/socket.h"

namespace nftp {

struct ConnectionOptions {
  // TASK_COMM_LEN counts the NUL.
  static constexpr size_t kMostNameBytes = 15;

  std::string netns;  // empty: the caller's
  // Name of the thread while it commits: the kernel reports it to every listener of events (NFTA_GEN_PROC_NAME).
  std::string name = "nft-proxier";
  size_t send_buffer = 0;
  size_t receive_buffer = 0;
};

struct CommitResult {
  uint64_t bytes = 0;
  uint64_t messages = 0;
  uint64_t kernel_ns = 0;
  uint64_t encode_ns = 0;
};

struct LinkName {
  uint32_t index = 0;
  std::string name;
};

struct InterfaceAddress {
  uint8_t family = 0;  // AF_INET or AF_INET6
  Bytes address;
  uint32_t prefix_length = 0;
  uint32_t interface_index = 0;
  std::string interface_name;
};

class Connection {
 public:
  // Throws Failure when the kernel has no nf_tables or lets us not use it.
  explicit Connection(const ConnectionOptions& options);

  // Of the socket that commits. Another one after a commit that failed because the socket was no more.
  uint32_t port_id() const { return port_id_; }
  const NetNamespace& netns() const { return netns_; }
  const ConnectionOptions& options() const { return options_; }

  // Encodes and sends; one at a time. Throws Failure.
  CommitResult Commit(Batch& batch);

  GenInfo Generation() const;
  std::vector<TableInfo> Tables(uint8_t family) const;
  // All of the table, or those of these names that are there. The kernel filters no dump of chains: it walks those of
  // every table of the family.
  std::vector<ChainInfo> Chains(const TableRef& table, const std::optional<std::vector<std::string>>& names) const;
  std::vector<RuleInfo> Rules(const TableRef& table, const std::optional<std::string>& chain) const;
  std::vector<SetDump> Sets(const TableRef& table) const;
  // Fills the collector with the elements of a set.
  void Elements(const TableRef& table, const std::string& set, ElementCollector* collector) const;
  std::vector<InterfaceAddress> Addresses() const;
  // Every network interface, whether it has addresses or not.
  std::vector<LinkName> Links() const;

  // Events of this namespace. The monitor does not listen while a loud batch is committed (Batch::loud), unless it
  // wants to hear of our own commits: the generation shows whether another process committed meanwhile (SendUnheard),
  // and then the events are reported as lost. Throws Failure.
  std::shared_ptr<Monitor> OpenMonitor(const MonitorOptions& options);

 private:
  void OpenSocket();
  void ReplaceSocket();
  void NoteError(int error);
  size_t RaiseSendBuffer(size_t bytes);
  void Drain(const std::function<void(const nlmsghdr*)>& on_message, bool* lost);
  CommitResult Send(Batch& batch);
  void ReadCounts(const CarriedCounts& counts, CommitResult* result);
  void CollectReplies(const Batch& batch);
  CommitResult SendUnheard(Batch& batch);
  bool AwaitAnnouncements();
  // The generation in force, all events of which have been sent; absent: the kernel does not say. Throws Failure.
  std::optional<uint32_t> AnnouncedGeneration();
  std::vector<std::shared_ptr<Monitor>> QuietMonitors();
  uint32_t GenerationOr(uint32_t fallback) const;

  const ConnectionOptions options_;
  const NetNamespace netns_;
  // Reads do not change the connection.
  mutable ReadSockets read_sockets_{kIdleReadSockets,
                                    [this] { return std::make_unique<NetlinkSocket>(netns_, NETLINK_NETFILTER); }};
  std::unique_ptr<NetlinkSocket> socket_;
  std::atomic<uint32_t> port_id_{0};
  bool dead_ = false;
  std::mutex commit_mutex_;
  size_t send_buffer_ = 0;
  uint32_t next_seq_ = 1;
  std::vector<uint8_t> receive_buffer_;
  std::mutex monitors_mutex_;
  std::vector<std::weak_ptr<Monitor>> monitors_;
};

}  // namespace nftp

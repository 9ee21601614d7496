// A connection to nf_tables of one network namespace: one socket for commits, and a separate socket per dump.
// Every method blocks; call them on worker threads. They may overlap.
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
  // Name of the thread while it commits. The kernel reports it to every listener of events (NFTA_GEN_PROC_NAME).
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
  // Throws Failure if the kernel has no nf_tables or denies access to it.
  explicit Connection(const ConnectionOptions& options);

  // Port of the socket that commits. It changes after a commit that failed because the socket was closed.
  uint32_t port_id() const { return port_id_; }
  const NetNamespace& netns() const { return netns_; }
  const ConnectionOptions& options() const { return options_; }

  // Encodes and sends the batch; one commit at a time. Throws Failure.
  CommitResult Commit(Batch& batch);

  GenInfo Generation() const;
  std::vector<TableInfo> Tables(uint8_t family) const;
  // Returns all chains of the table, or the existing ones of these names. The kernel cannot filter a dump of chains: it
  // walks the chains of every table of the family.
  std::vector<ChainInfo> Chains(const TableRef& table, const std::optional<std::vector<std::string>>& names) const;
  std::vector<RuleInfo> Rules(const TableRef& table, const std::optional<std::string>& chain) const;
  std::vector<SetDump> Sets(const TableRef& table) const;
  // Returns the table's named objects, or the one of this name and kind (NFT_OBJECT_*).
  std::vector<ObjectInfo> Objects(const TableRef& table) const;
  std::optional<ObjectInfo> NamedObject(const TableRef& table, const std::string& name, uint32_t type,
                                        bool reset) const;
  // Fills the collector with the elements of a set.
  void Elements(const TableRef& table, const std::string& set, ElementCollector* collector) const;
  std::vector<InterfaceAddress> Addresses() const;
  // Returns every network interface, with or without addresses.
  std::vector<LinkName> Links() const;

  // Opens a monitor for events of this namespace. While a loud batch (Batch::loud) is committed, the monitor does not
  // listen unless it wants events of our own commits. The generation shows whether another process committed meanwhile
  // (SendUnheard); then events are reported as lost. Throws Failure.
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
  // Returns the active generation, after all of its events were sent; absent if the kernel does not report it. Throws
  // Failure.
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

#include "socket/connection.h"

#include <libnftnl/common.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "codec/message_decoder.h"
#include "socket/dump.h"

namespace nftp {

namespace {

constexpr int kERestart = 85;  // ERESTART: the generation was not the expected one
// Each fault comes in its own datagram; a batch with many bad operations needs room for them.
constexpr size_t kRepliesBuffer = 8 << 20;
// Room for one reply or element: none exceeds a page plus overhead (NLMSG_GOODSIZE).
constexpr size_t kReplyRoom = 1 << 14;
// netlink_sendmsg takes at most sk_sndbuf - 32.
constexpr size_t kSendOverhead = 32;
constexpr size_t kMaxDescribedFaults = 5;
// Maximum number of empty transactions sent until one sees an unchanged generation. Each takes microseconds unless it
// must wait for another transaction.
constexpr int kMaxAnnouncementWaits = 8;

uint64_t Now() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

// The kernel's generation is never 0.
uint32_t NextGeneration(uint32_t id) { return id + 1 == 0 ? 1 : id + 1; }

// Builds the batch that a monitor would have received for a commit of this thread, but without events.
ChangeBatch OwnBatch(uint32_t generation, uint32_t port, const std::string& name) {
  ChangeBatch batch;
  batch.generation = generation;
  batch.port_id = port;
  // gettid() exists only since glibc 2.30.
  batch.pid = static_cast<uint32_t>(syscall(SYS_gettid));
  batch.process = name;
  return batch;
}

// The kernel reports the name of the committing thread to every listener (NFTA_GEN_PROC_NAME): for "libuv-worker" it
// would send no event.
class BorrowedThreadName {
 public:
  explicit BorrowedThreadName(const std::string& name) {
    named_ = pthread_getname_np(pthread_self(), own_, sizeof own_) == 0 &&
             pthread_setname_np(pthread_self(), name.c_str()) == 0;
  }
  ~BorrowedThreadName() {
    if (named_) pthread_setname_np(pthread_self(), own_);
  }
  BorrowedThreadName(const BorrowedThreadName&) = delete;
  BorrowedThreadName& operator=(const BorrowedThreadName&) = delete;

 private:
  char own_[16] = {};
  bool named_ = false;
};

bool Same(const TableRef& a, const TableRef& b) { return a.family == b.family && a.table == b.table; }

}  // namespace

Connection::Connection(const ConnectionOptions& options)
    : options_(options),
      netns_(options.netns.empty() ? NetNamespace() : NetNamespace(options.netns)),
      receive_buffer_(NetlinkSocket::kMostAtOnce * kReplyRoom) {
  OpenSocket();
  // Fail at once if nf_tables is missing or access is denied.
  static_cast<void>(Generation());
}

void Connection::OpenSocket() {
  auto socket = std::make_unique<NetlinkSocket>(netns_, NETLINK_NETFILTER);
  socket->WantExtendedAcks();
  socket->SetReceiveBuffer(kRepliesBuffer);
  send_buffer_ = options_.send_buffer != 0 ? socket->SetSendBuffer(options_.send_buffer) : 0;
  socket_ = std::move(socket);
  port_id_ = socket_->port_id();
  dead_ = false;
}

// Distinguishes a socket that was closed from one that failed.
void Connection::NoteError(int error) { dead_ = dead_ || error == EBADF || error == ENOTSOCK; }

// Raises the buffer for a batch of at most this many bytes. Returns the size that the kernel then accepts.
size_t Connection::RaiseSendBuffer(size_t bytes) {
  const size_t needed = std::min(bytes, LargestBatch()) + kSendOverhead;
  if (send_buffer_ < needed) send_buffer_ = socket_->SetSendBuffer(needed);
  return std::min(send_buffer_ - std::min(send_buffer_, kSendOverhead), LargestBatch());
}

namespace {

Failure TooLarge(size_t limit) {
  if (limit == LargestBatch()) return BatchTooLarge();
  // Not every namespace shows this file.
  const std::string most = ReadFirstLine("/proc/sys/net/core/wmem_max");
  return Failure("too-large",
                 "the batch has more than " + std::to_string(limit) +
                     " bytes, and the socket's send buffer cannot be larger (net.core.wmem_max" +
                     (most.empty() ? "" : " is " + most) +
                     "; exceeding it needs CAP_NET_ADMIN in the initial user namespace)",
                 EMSGSIZE);
}

}  // namespace

// Reads all pending replies.
void Connection::Drain(const std::function<void(const nlmsghdr*)>& on_message, bool* lost) {
  std::array<ssize_t, NetlinkSocket::kMostAtOnce> lengths{};
  for (;;) {
    const int got = socket_->ReceiveReady(receive_buffer_.data(), kReplyRoom, &lengths);
    if (got == -EAGAIN) return;
    if (got < 0) {
      // Replies were dropped, or the socket was closed. The replies received so far still count.
      *lost = true;
      if (got == -ENOBUFS) continue;
      NoteError(-got);
      return;
    }
    for (size_t i = 0; i < static_cast<size_t>(got); ++i) {
      *lost |= lengths[i] < 0;
      int left = static_cast<int>(lengths[i]);
      for (auto* message = reinterpret_cast<const nlmsghdr*>(receive_buffer_.data() + i * kReplyRoom);
           mnl_nlmsg_ok(message, left); message = mnl_nlmsg_next(message, &left)) {
        on_message(message);
      }
    }
    // No replies are left.
    if (static_cast<size_t>(got) < lengths.size()) return;
  }
}

void Connection::CollectReplies(const Batch& batch) {
  std::vector<Fault> faults;
  std::string described;
  int batch_error = 0;
  bool acknowledged = false;
  bool lost = false;
  Drain(
      [&](const nlmsghdr* message) {
        if (message->nlmsg_type != NLMSG_ERROR) return;
        const ErrorReply reply = DecodeError(message);
        if (reply.error == 0) {
          acknowledged |= reply.seq == batch.last_seq();
        } else if (std::optional<Fault> fault = batch.FaultOf(reply)) {
          if (faults.size() < kMaxDescribedFaults) described += "; " + batch.Describe(*fault, reply.offset);
          faults.push_back(std::move(*fault));
        } else if (reply.seq == batch.first_seq()) {
          batch_error = reply.error;
        }
      },
      &lost);
  if (batch_error == kERestart && batch.options().expect_generation) {
    throw Failure(
        "stale",
        "the ruleset's generation differs from the expected " + std::to_string(*batch.options().expect_generation),
        kERestart);
  }
  if (!faults.empty()) {
    if (faults.size() > kMaxDescribedFaults) {
      described += "; and " + std::to_string(faults.size() - kMaxDescribedFaults) + " more";
    }
    const int error = faults.front().error;
    throw Failure("refused", "the kernel refused the batch" + described, error, std::move(faults));
  }
  if (batch_error == EPERM) throw Failure::System("commit", batch_error);
  if (batch_error == EOPNOTSUPP && !acknowledged) {
    throw Failure("no-nftables", "the kernel has no nf_tables (CONFIG_NF_TABLES)", batch_error);
  }
  if (batch_error != 0) {
    throw Failure("refused", "the kernel refused the batch as a whole: " + DescribeErrno(batch_error), batch_error);
  }
  if (acknowledged) return;
  throw Failure("unknown-outcome",
                lost ? "the kernel's replies to a batch were lost; read the active ruleset"
                     : "the kernel did not answer a batch; read the active ruleset",
                lost ? ENOBUFS : 0);
}

// Reads the counters of the elements that will be replaced, right before the commit. Packets in between are not
// counted.
void Connection::ReadCounts(const CarriedCounts& counts, CommitResult* result) {
  std::vector<uint8_t> requests;
  for (size_t first = 0; first < counts.size();) {
    const uint32_t seq = next_seq_;
    const size_t asked = counts.Request(first, seq, &requests);
    next_seq_ += static_cast<uint32_t>(asked);
    const uint64_t sent = Now();
    // If this send fails, the commit fails, too.
    if (socket_->Send(requests.data(), requests.size()) != 0) return;
    result->kernel_ns += Now() - sent;
    bool lost = false;
    Drain(
        [&](const nlmsghdr* message) {
          const uint32_t number = message->nlmsg_seq - seq;
          if (message->nlmsg_type != NLMSG_ERROR && number < asked) counts.Read(first + number, message);
        },
        &lost);
    first += asked;
  }
}

CommitResult Connection::Send(Batch& batch) {
  CommitResult result;
  const CarriedCounts counts(batch);
  const size_t limit = RaiseSendBuffer(batch.bound());
  ReadCounts(counts, &result);
  // An unread reply would be mistaken for a reply to this batch.
  bool lost = false;
  if (counts.size() == 0) Drain([](const nlmsghdr*) {}, &lost);
  const uint64_t start = Now();
  if (!batch.Encode(next_seq_, limit)) throw TooLarge(limit);
  next_seq_ = batch.last_seq() + 2;
  result.encode_ns = Now() - start;
  if (batch.messages() == 0) {
    // Nothing is sent, so no reply would compare the generation.
    if (batch.options().expect_generation && Generation().id != *batch.options().expect_generation) {
      throw Failure("stale", "the ruleset's generation differs from the expected one", kERestart);
    }
    return result;
  }
  result.bytes = batch.size();
  result.messages = batch.messages();
  int error;
  {
    const BorrowedThreadName name(options_.name);
    const uint64_t sent = Now();
    error = socket_->Send(batch.data(), batch.size());
    result.kernel_ns += Now() - sent;
  }
  if (error == EMSGSIZE) {
    throw Failure("too-large",
                  "the batch of " + std::to_string(batch.size()) + " bytes exceeds the socket's send buffer", error);
  }
  if (error != 0) {
    NoteError(error);
    throw Failure::System("sending a batch of " + std::to_string(batch.size()) + " bytes; no part of it is active",
                          error);
  }
  CollectReplies(batch);
  return result;
}

std::shared_ptr<Monitor> Connection::OpenMonitor(const MonitorOptions& options) {
  auto monitor = std::make_shared<Monitor>(netns_, options);
  const std::lock_guard<std::mutex> lock(monitors_mutex_);
  monitors_.erase(std::remove_if(monitors_.begin(), monitors_.end(), [](const auto& other) { return other.expired(); }),
                  monitors_.end());
  monitors_.push_back(monitor);
  return monitor;
}

std::vector<std::shared_ptr<Monitor>> Connection::QuietMonitors() {
  std::vector<std::shared_ptr<Monitor>> monitors;
  const std::lock_guard<std::mutex> lock(monitors_mutex_);
  for (const std::weak_ptr<Monitor>& weak : monitors_) {
    if (std::shared_ptr<Monitor> monitor = weak.lock(); monitor && monitor->skips(port_id())) {
      monitors.push_back(std::move(monitor));
    }
  }
  return monitors;
}

// Sends an empty transaction, which neither raises the generation nor has events (nf_tables_commit). It needs the mutex
// of transactions, which any other transaction holds from its first message until its last event is queued at every
// listener. So once this returns true, no earlier transaction is still being announced.
bool Connection::AwaitAnnouncements() {
  alignas(nlmsghdr) char buffer[128];
  const uint32_t seq = next_seq_;
  next_seq_ += 2;
  size_t length = nftnl_batch_begin(buffer, seq)->nlmsg_len;
  length += nftnl_batch_end(buffer + length, seq + 1)->nlmsg_len;
  if (socket_->Send(buffer, length) != 0) return false;
  bool failed = false;
  Drain(
      [&](const nlmsghdr* message) { failed |= message->nlmsg_type == NLMSG_ERROR && DecodeError(message).error != 0; },
      &failed);
  return !failed;
}

std::optional<uint32_t> Connection::AnnouncedGeneration() {
  uint32_t generation = Generation().id;
  for (int attempt = 1; AwaitAnnouncements(); ++attempt) {
    const uint32_t now = Generation().id;
    // A busy neighbour may win every time: then its changes are reported as lost.
    if (now == generation || attempt == kMaxAnnouncementWaits) return generation;
    generation = now;
  }
  return std::nullopt;
}

// Our monitors leave the group during the commit and rejoin it afterwards. The kernel first raises its generation and
// then sends the events, so a generation that can be read does not prove that its events were received:
//
//   A   generation whose events, and those of all before it, are known to be queued at the monitors
//   leave, commit, return
//   B   generation as read now
//
// B == A + 1 (A, if the commit failed) means that the kernel's state went from A to B by our commit alone, whenever
// another process tried:
// - before A was read: its events are queued (AwaitAnnouncements), and leaving the group does not remove them. If the
//   kernel dropped some of them, the monitor's own socket reports that (ENOBUFS).
// - after A and before B was read, before or after our commit: B is later than A + 1, and events are reported as lost.
// - after B was read: the monitors have rejoined, so they receive every event.
// A monitor opened meanwhile is in the group from its beginning. Monitors of other connections are, too; for them our
// events are those of another process. Commits of this connection do not overlap (commit_mutex_).
CommitResult Connection::SendUnheard(Batch& batch) {
  std::vector<std::shared_ptr<Monitor>> monitors = QuietMonitors();
  if (monitors.empty()) return Send(batch);
  const std::optional<uint32_t> before = AnnouncedGeneration();
  // Waiting for the echo costs more, but is correct.
  if (!before) return Send(batch);
  monitors.erase(
      std::remove_if(monitors.begin(), monitors.end(), [](const auto& monitor) { return !monitor->Leave(); }),
      monitors.end());
  const auto come_back = [&](bool committed) {
    for (const std::shared_ptr<Monitor>& monitor : monitors) monitor->ListenAgain();
    const uint32_t expected = committed ? NextGeneration(*before) : *before;
    std::vector<MonitorItem> missed;
    if (GenerationOr(0) != expected) missed.emplace_back(EventsLost{});
    if (committed) missed.emplace_back(OwnBatch(expected, port_id(), options_.name));
    for (const std::shared_ptr<Monitor>& monitor : monitors) monitor->Tell(missed);
  };
  try {
    CommitResult result = Send(batch);
    come_back(true);
    return result;
  } catch (...) {
    come_back(false);
    throw;
  }
}

uint32_t Connection::GenerationOr(uint32_t fallback) const {
  try {
    return Generation().id;
  } catch (const Failure&) {
    return fallback;
  }
}

CommitResult Connection::Commit(Batch& batch) {
  const std::lock_guard<std::mutex> lock(commit_mutex_);
  try {
    if (dead_) OpenSocket();
    // Other code may have opened another file under this number, which must not receive the batch.
    if (!socket_->alive()) throw Failure::System("sending a batch; no part of it is active", EBADF);
    CommitResult result = batch.loud() && !batch.options().dry_run ? SendUnheard(batch) : Send(batch);
    batch.Release();
    return result;
  } catch (...) {
    batch.Release();
    dead_ = dead_ || !socket_->alive();
    // Replace it at once, so that a check of the port shows that events of the former socket were lost.
    if (dead_) ReplaceSocket();
    throw;
  }
}

void Connection::ReplaceSocket() {
  try {
    OpenSocket();
  } catch (const Failure&) {
    // The next commit tries again and reports why it fails.
  }
}

GenInfo Connection::Generation() const {
  GenInfo generation;
  NfTablesRequest request(NFT_MSG_GETGEN, 0, 0);
  bool found = false;
  RunRequest(
      read_sockets_, request.message(), "generation", [] {},
      [&](const nlmsghdr* message) {
        generation = DecodeGen(message);
        found = true;
      });
  if (!found) throw Failure("no-nftables", "the kernel did not send a generation", 0);
  // The process in this reply is the one that asks.
  generation.pid.reset();
  generation.name.reset();
  return generation;
}

std::vector<TableInfo> Connection::Tables(uint8_t family) const {
  std::vector<TableInfo> tables;
  NfTablesRequest request(NFT_MSG_GETTABLE, NLM_F_DUMP, family);
  RunRequest(
      read_sockets_, request.message(), "dump tables", [&] { tables.clear(); },
      [&](const nlmsghdr* message) {
        TableInfo info = DecodeTable(message);
        if (family == 0 || info.ref.family == family) tables.push_back(std::move(info));
      });
  return tables;
}

std::vector<ChainInfo> Connection::Chains(const TableRef& table,
                                          const std::optional<std::vector<std::string>>& names) const {
  std::vector<ChainInfo> chains;
  const auto add = [&](const nlmsghdr* message) {
    // Most chains are in other tables if a firewall has a chain for everything.
    if (TableOfChain(message) != table.table) return;
    ChainInfo info = DecodeChain(message);
    if (Same(info.ref, table)) chains.push_back(std::move(info));
  };
  if (!names) {
    const NfTablesRequest request(NFT_MSG_GETCHAIN, NLM_F_DUMP, table.family);
    RunRequest(
        read_sockets_, request.message(), "dump chains", [&] { chains.clear(); }, add);
    return chains;
  }
  for (const std::string& name : *names) {
    NfTablesRequest request(NFT_MSG_GETCHAIN, 0, table.family);
    request.writer().String(NFTA_CHAIN_TABLE, table.table);
    request.writer().String(NFTA_CHAIN_NAME, name);
    RunRequest(
        read_sockets_, request.message(), "read chains", [] {}, add, true);
  }
  return chains;
}

std::vector<RuleInfo> Connection::Rules(const TableRef& table, const std::optional<std::string>& chain) const {
  std::vector<RuleInfo> rules;
  NfTablesRequest request(NFT_MSG_GETRULE, NLM_F_DUMP, table.family);
  request.writer().String(NFTA_RULE_TABLE, table.table);
  if (chain) request.writer().String(NFTA_RULE_CHAIN, *chain);
  RunRequest(
      read_sockets_, request.message(), "dump rules", [&] { rules.clear(); },
      [&](const nlmsghdr* message) {
        RuleInfo info = DecodeRule(message);
        if (Same(info.ref, table) && (!chain || info.chain == *chain)) rules.push_back(std::move(info));
      });
  return rules;
}

std::vector<SetDump> Connection::Sets(const TableRef& table) const {
  std::vector<SetDump> sets;
  NfTablesRequest request(NFT_MSG_GETSET, NLM_F_DUMP, table.family);
  request.writer().String(NFTA_SET_TABLE, table.table);
  RunRequest(
      read_sockets_, request.message(), "dump sets", [&] { sets.clear(); },
      [&](const nlmsghdr* message) {
        SetDump dump = DecodeSet(message);
        if (Same(dump.ref, table)) sets.push_back(std::move(dump));
      },
      // With a table's name, the kernel returns ENOENT if there is no such table.
      true);
  return sets;
}

std::vector<ObjectInfo> Connection::Objects(const TableRef& table) const {
  std::vector<ObjectInfo> objects;
  NfTablesRequest request(NFT_MSG_GETOBJ, NLM_F_DUMP, table.family);
  request.writer().String(NFTA_OBJ_TABLE, table.table);
  RunRequest(
      read_sockets_, request.message(), "dump objects", [&] { objects.clear(); },
      [&](const nlmsghdr* message) {
        ObjectInfo info = DecodeObject(message);
        // Some kernels do not filter by the table's name, and return the objects of all tables.
        if (Same(info.ref, table)) objects.push_back(std::move(info));
      },
      true);
  return objects;
}

// Not a dump: a dump that is interrupted and repeated would lose what it has reset.
std::optional<ObjectInfo> Connection::NamedObject(const TableRef& table, const std::string& name, uint32_t type,
                                                  bool reset) const {
  std::optional<ObjectInfo> object;
  NfTablesRequest request(reset ? NFT_MSG_GETOBJ_RESET : NFT_MSG_GETOBJ, 0, table.family);
  request.writer().String(NFTA_OBJ_TABLE, table.table);
  request.writer().String(NFTA_OBJ_NAME, name);
  request.writer().U32(NFTA_OBJ_TYPE, type);
  RunRequest(
      read_sockets_, request.message(), "read object", [&] { object.reset(); },
      [&](const nlmsghdr* message) { object = DecodeObject(message); }, true);
  return object;
}

void Connection::Elements(const TableRef& table, const std::string& set, ElementCollector* collector) const {
  NfTablesRequest request(NFT_MSG_GETSETELEM, NLM_F_DUMP, table.family);
  request.writer().String(NFTA_SET_ELEM_LIST_TABLE, table.table);
  request.writer().String(NFTA_SET_ELEM_LIST_SET, set);
  try {
    for (int attempt = 0; attempt <= kMaxRestarts; ++attempt) {
      RunRequest(
          read_sockets_, request.message(), "dump elements", [&] { collector->Reset(); },
          [&](const nlmsghdr* message) { collector->Add(message); });
      if (collector->Sort()) return;
    }
    throw Failure("interrupted",
                  "dump elements: the kernel resized set " + set + " during each of " +
                      std::to_string(kMaxRestarts + 1) + " reads in a row; read it again",
                  EINTR);
  } catch (const Failure& failure) {
    if (failure.error() != ENOENT) throw;
    throw Failure("not-found", "there is no set " + table.table + " " + set, ENOENT);
  }
}

}  // namespace nftp

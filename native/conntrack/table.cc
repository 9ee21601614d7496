#include "conntrack/table.h"

#include <linux/netfilter/nfnetlink_conntrack.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "codec/message_decoder.h"
#include "socket/dump.h"
#include "socket/socket.h"

namespace nftp {

namespace {

// Deletions per system call. If all fail, their errors still fit the default receive buffer.
constexpr size_t kDeletions = 128;
// Maximum number of entries gathered from a dump before they are deleted.
constexpr size_t kGathered = 8 * kDeletions;
// Two dumps, a deletion, a read of the statistics and a lookup of one entry may run at the same time.
constexpr size_t kIdleSockets = 5;
constexpr uint32_t kStatusFixedTimeout = 1 << 10;

}  // namespace

// nfnetlink answers EINVAL for a missing subsystem. Requests for totals contain nothing else that could be invalid.
Failure ConntrackOpenFailure(const Failure& failure) {
  const std::string advice = "; the kernel has no ctnetlink (CONFIG_NF_CT_NETLINK; `modprobe nf_conntrack_netlink`)";
  switch (failure.error()) {
    case EINVAL:
    case EOPNOTSUPP:
      return Failure("no-conntrack", failure.message() + advice, failure.error());
    case EPROTONOSUPPORT:
    case EAFNOSUPPORT:
      return Failure("no-conntrack", failure.message(), failure.error());
    default:
      return failure;
  }
}

ConntrackTable::ConntrackTable(const ConnectionOptions& options) try
    : options_(options),
      netns_(options.netns.empty() ? NetNamespace() : NetNamespace(options.netns)),
      sockets_(kIdleSockets, [this] { return std::make_unique<ConntrackSocket>(netns_); }) {
  static_cast<void>(Totals());
} catch (const Failure& failure) {
  throw ConntrackOpenFailure(failure);
}

int ConntrackTable::Ask(const ConntrackRequests& requests, const std::function<void(const nlmsghdr*)>& on_answer) {
  // A socket whose request fails is closed, so that the next request does not take a late answer for its own.
  std::unique_ptr<ConntrackSocket> socket = sockets_.Take();
  int failed = 0;
  socket->Send(requests);
  socket->Answers(kSeq, [&](const nlmsghdr* message, int error) {
    failed = error;
    if (error == 0) on_answer(message);
  });
  sockets_.GiveBack(std::move(socket));
  return failed;
}

ConntrackTotals ConntrackTable::Totals() {
  ConntrackTotals totals;
  ConntrackRequests requests;
  requests.GetTotals(kSeq);
  const int error = Ask(requests, [&](const nlmsghdr* message) { totals = DecodeConntrackTotals(message); });
  if (error != 0) throw ConntrackFailure(error);
  if (!totals.max) {
    // Linux before 4.18 has one number for all namespaces.
    const std::string max = ReadFirstLine("/proc/sys/net/netfilter/nf_conntrack_max");
    if (!max.empty()) totals.max = static_cast<uint32_t>(std::strtoul(max.c_str(), nullptr, 10));
  }
  return totals;
}

ConntrackCounts ConntrackTable::Counts() {
  ConntrackCounts counts;
  std::unique_ptr<ConntrackSocket> socket = sockets_.Take();
  ConntrackRequests requests;
  requests.GetCounts(kSeq);
  socket->Send(requests);
  while (socket->Receive([&](const nlmsghdr* message) {
    const bool done = message->nlmsg_type == NLMSG_DONE;
    if (done || message->nlmsg_type == NLMSG_ERROR) {
      const int error = done ? ErrorOfDone(message) : DecodeError(message).error;
      if (error != 0) throw ConntrackFailure(error);
      return false;
    }
    AddConntrackCounts(message, &counts);
    return true;
  })) {
  }
  sockets_.GiveBack(std::move(socket));
  return counts;
}

std::optional<ConntrackRecord> ConntrackTable::Lookup(const ConntrackRecord& key) {
  std::optional<ConntrackRecord> found;
  ConntrackRequests requests;
  requests.Get(key, kSeq);
  const int error = Ask(requests, [&](const nlmsghdr* message) {
    ConntrackRecord record{};
    if (DecodeConntrack(message, &record)) found = record;
  });
  if (error != 0 && error != ENOENT) throw ConntrackFailure(error);
  return found;
}

void ConntrackTable::Acknowledged(const ConntrackRequests& requests) {
  if (const int error = Ask(requests, [](const nlmsghdr*) {}); error != 0) throw ConntrackFailure(error);
}

void ConntrackTable::Create(const ConntrackRecord& entry) {
  ConntrackRequests requests;
  requests.Create(entry, kSeq);
  Acknowledged(requests);
}

void ConntrackTable::Change(const ConntrackRecord& key, const ConntrackChange& change) {
  // The kernel does not check the id of an entry before it changes it.
  const std::optional<ConntrackRecord> now = Lookup(key);
  if (!now || now->id != key.id) throw Failure("not-found", "the entry does not exist", ENOENT);
  if (change.timeout && (now->status & kStatusFixedTimeout) != 0) {
    throw Failure("system", "the entry's timeout is fixed (status bit 10)", EPERM);
  }
  ConntrackRequests requests;
  requests.Change(key, change, kSeq);
  Acknowledged(requests);
}

namespace {

// Deletes in batches. Throws Failure; answers may then still be pending on the socket.
class Deleter {
 public:
  explicit Deleter(ConntrackSocket* socket) : socket_(socket) {}

  // Calls `absent` with the position of each key that has no entry.
  template <typename Absent>
  void Delete(const ConntrackRecords& keys, ConntrackDeletion* outcome, Absent absent) {
    for (size_t from = 0; from < keys.size(); from += kDeletions) {
      DeleteBatch(keys.data() + from, std::min(kDeletions, keys.size() - from), outcome,
                  [&](size_t at) { absent(from + at); });
    }
  }

 private:
  template <typename Absent>
  void DeleteBatch(const ConntrackRecord* keys, size_t count, ConntrackDeletion* outcome, Absent is_absent) {
    requests_.Clear();
    const uint32_t first = seq_ + 1;
    // The kernel handles the requests in order and always returns errors, so the acknowledgement of the last one says
    // that all are done.
    for (size_t i = 0; i < count; ++i) requests_.Delete(keys[i], i + 1 == count ? NLM_F_ACK : 0, ++seq_);
    socket_->Send(requests_);
    uint64_t absent = 0;
    socket_->Answers(seq_, [&](const nlmsghdr* message, int error) {
      if (error == ENOENT) {
        ++absent;
        is_absent(message->nlmsg_seq - first);
      } else if (error != 0) {
        throw ConntrackFailure(error);
      }
    });
    outcome->absent += absent;
    outcome->deleted += count - absent;
  }

  ConntrackSocket* const socket_;
  ConntrackRequests requests_;
  uint32_t seq_ = 0;
};

}  // namespace

ConntrackDeletion ConntrackTable::Delete(const ConntrackRecords& keys) {
  ConntrackDeletion outcome;
  std::unique_ptr<ConntrackSocket> socket = sockets_.Take();
  std::vector<uint32_t>& absent_at = outcome.absent_at.emplace();
  Deleter(socket.get()).Delete(keys, &outcome, [&](size_t at) { absent_at.push_back(static_cast<uint32_t>(at)); });
  sockets_.GiveBack(std::move(socket));
  return outcome;
}

ConntrackDeletion ConntrackTable::DeleteMatching(const ConntrackFilter& filter) {
  ConntrackDeletion outcome;
  std::unique_ptr<ConntrackSocket> socket = sockets_.Take();
  Deleter deleter(socket.get());
  ConntrackDump dump(&sockets_, filter, &plain_dumps_);
  ConntrackRecords matching;
  while (!dump.done()) {
    dump.Next([&](const ConntrackRecord& record) { matching.push_back(record); });
    if (matching.size() < kGathered && !dump.done()) continue;
    deleter.Delete(matching, &outcome, [](size_t) {});
    matching.clear();
  }
  outcome.interrupted = dump.reading().interrupted();
  sockets_.GiveBack(std::move(socket));
  return outcome;
}

std::unique_ptr<ConntrackDump> ConntrackTable::Dump(const ConntrackFilter& filter) {
  return std::make_unique<ConntrackDump>(&sockets_, filter, &plain_dumps_);
}

}  // namespace nftp

#include "socket/legacy_tables.h"

#include <fcntl.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <sys/file.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "codec/failure.h"

namespace nftp {

namespace {

// The table may change between the requests about it and before it is replaced.
constexpr int kMostAttempts = 5;

// Both families use the same structs and option numbers, each at its own level.
static_assert(sizeof(ipt_getinfo) == sizeof(ip6t_getinfo) && sizeof(ipt_get_entries) == sizeof(ip6t_get_entries));
static_assert(sizeof(ipt_replace) == sizeof(ip6t_replace));
constexpr int kGetInfo = IPT_SO_GET_INFO;
constexpr int kGetEntries = IPT_SO_GET_ENTRIES;
constexpr int kReplace = IPT_SO_SET_REPLACE;
constexpr int kAddCounters = IPT_SO_SET_ADD_COUNTERS;
static_assert(kGetInfo == IP6T_SO_GET_INFO && kGetEntries == IP6T_SO_GET_ENTRIES);
static_assert(kReplace == IP6T_SO_SET_REPLACE && kAddCounters == IP6T_SO_SET_ADD_COUNTERS);

// Memory for large answers of the kernel; a vector would first clear it.
class Buffer {
 public:
  explicit Buffer(size_t size) : data_(new uint8_t[size]), size_(size) {}
  uint8_t* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-c-arrays)
  std::unique_ptr<uint8_t[]> data_;
  size_t size_;
};

struct ReadTable {
  ipt_getinfo info;
  Buffer answer;

  const uint8_t* entries() const { return answer.data() + sizeof(ipt_get_entries); }
  LegacyHooks hooks() const {
    LegacyHooks hooks;
    hooks.valid = info.valid_hooks;
    std::copy(std::begin(info.hook_entry), std::end(info.hook_entry), hooks.entry.begin());
    std::copy(std::begin(info.underflow), std::end(info.underflow), hooks.underflow.begin());
    return hooks;
  }
};

class TableSocket {
 public:
  TableSocket(const NetNamespace& netns, const TableRef& table)
      : name_(table.table), what_("iptables table " + table.table), level_(LevelOf(table.family)) {
    if (name_.size() >= sizeof ipt_getinfo::name) throw Failure::Invalid("table: at most 31 bytes");
    // Any socket of the family works; a raw one would need CAP_NET_RAW.
    socket_ = netns.Socket(table.family == NFPROTO_IPV6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
  }

  ipt_getinfo Info() const {
    ipt_getinfo info{};
    std::memcpy(info.name, name_.c_str(), name_.size() + 1);
    const int error = Ask(kGetInfo, &info, sizeof info);
    if (error != 0) throw Failure::System(what_, error);
    return info;
  }

  ReadTable Read(uint64_t most_bytes) const {
    for (int attempt = 1;; ++attempt) {
      const ipt_getinfo info = Info();
      if (info.size > most_bytes) throw TooLarge(info.size);
      ReadTable table{info, Buffer(sizeof(ipt_get_entries) + info.size)};
      // Constructed in place: the struct ends in an array of no fixed length, which is not a value in C++.
      auto* const request = reinterpret_cast<ipt_get_entries*>(table.answer.data());
      std::memset(request, 0, sizeof *request);
      std::memcpy(request->name, info.name, sizeof request->name);
      request->size = info.size;
      const int error = Ask(kGetEntries, table.answer.data(), table.answer.size());
      // The entries may be those of a later table of the same length.
      if (error == 0 && Same(info, Info())) return table;
      // EAGAIN: the table's length has changed.
      if (error != 0 && error != EAGAIN) throw Failure::System(what_, error);
      if (attempt == kMostAttempts) throw Failure::System(what_, EAGAIN);
    }
  }

  // Replaces all entries by the remaining ones and returns the counters of the former ones. Returns nothing if the
  // table has changed.
  std::optional<std::vector<xt_counters>> Replace(const ReadTable& former, const LegacyTable& table,
                                                  const LegacyRemoval& removal) const {
    std::vector<xt_counters> counters(former.info.num_entries);
    const Buffer request(sizeof(ipt_replace) + removal.length);
    auto* const head = reinterpret_cast<ipt_replace*>(request.data());
    std::memset(head, 0, sizeof *head);
    std::memcpy(head->name, former.info.name, sizeof head->name);
    head->valid_hooks = removal.hooks.valid;
    head->num_entries = static_cast<uint32_t>(removal.left.size()) + 1;
    head->size = removal.length;
    std::copy(removal.hooks.entry.begin(), removal.hooks.entry.end(), std::begin(head->hook_entry));
    std::copy(removal.hooks.underflow.begin(), removal.hooks.underflow.end(), std::begin(head->underflow));
    head->num_counters = former.info.num_entries;
    head->counters = counters.data();
    WriteRemaining(table, removal, request.data() + sizeof *head);
    const int error = Tell(kReplace, request.data(), request.size());
    if (error == 0) return counters;
    if (error == EAGAIN) return std::nullopt;
    throw Failure::System(what_, error);
  }

  // Adds the former counts to the remaining entries. Returns false if the table was replaced again.
  bool AddCounters(const std::vector<xt_counters>& former, const LegacyRemoval& removal) const {
    const size_t count = removal.left.size() + 1;
    const Buffer request(sizeof(xt_counters_info) + count * sizeof(xt_counters));
    auto* const head = reinterpret_cast<xt_counters_info*>(request.data());
    std::memset(head, 0, request.size());
    std::memcpy(head->name, name_.c_str(), name_.size() + 1);
    head->num_counters = static_cast<uint32_t>(count);
    for (size_t index = 0; index < removal.left.size(); ++index) {
      std::memcpy(request.data() + sizeof *head + index * sizeof(xt_counters), &former[removal.left[index]],
                  sizeof(xt_counters));
    }
    return Tell(kAddCounters, request.data(), request.size()) == 0;
  }

 private:
  static int LevelOf(uint8_t family) {
    if (family == NFPROTO_IPV4) return IPPROTO_IP;
    if (family == NFPROTO_IPV6) return IPPROTO_IPV6;
    throw Failure::Invalid("family: expected ip or ip6");
  }

  Failure TooLarge(uint32_t size) const {
    return Failure("too-large", what_ + ": its " + std::to_string((size >> 20) + 1) + " MiB exceed the free memory");
  }

  static bool Same(const ipt_getinfo& left, const ipt_getinfo& right) {
    return left.size == right.size && left.num_entries == right.num_entries && left.valid_hooks == right.valid_hooks &&
           std::equal(std::begin(left.hook_entry), std::end(left.hook_entry), std::begin(right.hook_entry)) &&
           std::equal(std::begin(left.underflow), std::end(left.underflow), std::begin(right.underflow));
  }

  // Both return the errno, or 0 for success.
  int Ask(int option, void* answer, size_t size) const {
    auto length = static_cast<socklen_t>(size);
    return getsockopt(socket_.get(), level_, option, answer, &length) == 0 ? 0 : errno;
  }
  int Tell(int option, const void* request, size_t size) const {
    return setsockopt(socket_.get(), level_, option, request, static_cast<socklen_t>(size)) == 0 ? 0 : errno;
  }

  std::string name_;
  std::string what_;
  int level_;
  Fd socket_;
};

// Holds the lock until destruction. The lock is exclusive; iptables and kube-proxy take it in the same way.
class XtablesLock {
 public:
  explicit XtablesLock(const std::string& path) : file_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY)) {
    if (!file_.valid()) {
      missing_ = path + ": " + DescribeErrno(errno);
      return;
    }
    // Do not wait: the caller decides, because this thread has other work.
    if (flock(file_.get(), LOCK_EX | LOCK_NB) == 0) return;
    const int error = errno;
    busy_ = error == EWOULDBLOCK;
    missing_ = path + ": " + DescribeErrno(error);
  }

  // Whether another process holds the lock.
  bool busy() const { return busy_; }
  // Why the lock is not held; empty if it is.
  const std::string& missing() const { return missing_; }

 private:
  Fd file_;
  bool busy_ = false;
  std::string missing_;
};

}  // namespace

std::vector<uint32_t> LegacyLayout(const NetNamespace& netns, const TableRef& table) {
  const ipt_getinfo info = TableSocket(netns, table).Info();
  std::vector<uint32_t> layout{info.size, info.num_entries, info.valid_hooks};
  layout.insert(layout.end(), std::begin(info.hook_entry), std::end(info.hook_entry));
  layout.insert(layout.end(), std::begin(info.underflow), std::end(info.underflow));
  return layout;
}

std::vector<std::string> LegacyChains(const NetNamespace& netns, const TableRef& table, uint64_t most_bytes) {
  const ReadTable read = TableSocket(netns, table).Read(most_bytes);
  return DecodeLegacyChains(table.family, read.entries(), read.info.size);
}

uint32_t LegacyRules(const NetNamespace& netns, const TableRef& table, const std::string& chain, uint64_t most_bytes) {
  const ReadTable read = TableSocket(netns, table).Read(most_bytes);
  return CountLegacyRules(table.family, read.entries(), read.info.size, chain);
}

bool LegacyForwardDrops(const NetNamespace& netns, const TableRef& table, uint64_t most_bytes) {
  const ReadTable read = TableSocket(netns, table).Read(most_bytes);
  if ((read.info.valid_hooks & (1U << NF_INET_FORWARD)) == 0) return false;
  return DecodeLegacyDrop(table.family, read.entries(), read.info.size, read.info.underflow[NF_INET_FORWARD]);
}

LegacyOutcome RemoveLegacyChains(const NetNamespace& netns, const TableRef& table, const OwnChains& own,
                                 const LegacyRemovalOptions& options) {
  const TableSocket socket(netns, table);
  const XtablesLock lock(options.lock_file);
  for (int attempt = 1; attempt <= kMostAttempts; ++attempt) {
    const ReadTable former = socket.Read(options.most_bytes);
    const LegacyTable parsed(table.family, former.hooks(), former.entries(), former.info.size);
    if (parsed.entries().size() + 1 != former.info.num_entries) {
      throw Failure("system", "unsupported iptables table: its number of entries is wrong", EBADMSG);
    }
    LegacyRemoval removal = PlanRemoval(parsed, own);
    LegacyOutcome outcome{removal.chains, removal.jumps, std::move(removal.kept), true, lock.missing()};
    if (removal.nothing()) return outcome;
    if (lock.busy()) throw Failure("system", "another process holds the lock " + options.lock_file, EAGAIN);
    const std::optional<std::vector<xt_counters>> counters = socket.Replace(former, parsed, removal);
    if (!counters) continue;
    outcome.counters_kept = socket.AddCounters(*counters, removal);
    return outcome;
  }
  throw Failure::System("iptables table " + table.table + ": changed by another process", EAGAIN);
}

}  // namespace nftp

#include "socket/legacy_tables.h"

#include <linux/netfilter.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "codec/failure.h"

namespace nftp {

namespace {

// The table may change between the requests about it.
constexpr int kMostAttempts = 5;

// Both families use the same structs and option numbers, each at its own level.
static_assert(sizeof(ipt_getinfo) == sizeof(ip6t_getinfo) && sizeof(ipt_get_entries) == sizeof(ip6t_get_entries));
constexpr int kGetInfo = IPT_SO_GET_INFO;
constexpr int kGetEntries = IPT_SO_GET_ENTRIES;
static_assert(kGetInfo == IP6T_SO_GET_INFO && kGetEntries == IP6T_SO_GET_ENTRIES);

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
    static_assert(std::has_unique_object_representations_v<ipt_getinfo>);
    return std::memcmp(&left, &right, sizeof left) == 0;
  }

  // Returns the errno, or 0 for success.
  int Ask(int option, void* answer, size_t size) const {
    auto length = static_cast<socklen_t>(size);
    return getsockopt(socket_.get(), level_, option, answer, &length) == 0 ? 0 : errno;
  }

  std::string name_;
  std::string what_;
  int level_;
  Fd socket_;
};

}  // namespace

std::vector<uint32_t> LegacyLayout(const NetNamespace& netns, const TableRef& table) {
  const ipt_getinfo info = TableSocket(netns, table).Info();
  std::vector<uint32_t> layout{info.size, info.num_entries, info.valid_hooks};
  layout.insert(layout.end(), std::begin(info.hook_entry), std::end(info.hook_entry));
  layout.insert(layout.end(), std::begin(info.underflow), std::end(info.underflow));
  return layout;
}

LegacyTable ReadLegacyTable(const NetNamespace& netns, const TableRef& table, uint64_t most_bytes) {
  const ReadTable read = TableSocket(netns, table).Read(most_bytes);
  const ipt_getinfo& info = read.info;
  LegacyTable found{DecodeLegacyChains(table.family, read.entries(), info.size)};
  if ((info.valid_hooks & (1U << NF_INET_FORWARD)) != 0) {
    found.forward_drops = DecodeLegacyDrop(table.family, read.entries(), info.size, info.underflow[NF_INET_FORWARD]);
  }
  return found;
}

}  // namespace nftp

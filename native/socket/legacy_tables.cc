#include "socket/legacy_tables.h"

#include <linux/netfilter.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "codec/attr.h"
#include "codec/failure.h"

namespace nftp {

namespace {

// The table may change between the two questions about it.
constexpr int kMostAttempts = 5;

// Both families ask with the same structs and option numbers, each at its own level.
static_assert(sizeof(ipt_getinfo) == sizeof(ip6t_getinfo) && sizeof(ipt_get_entries) == sizeof(ip6t_get_entries));
constexpr int kGetInfo = IPT_SO_GET_INFO;
constexpr int kGetEntries = IPT_SO_GET_ENTRIES;
static_assert(kGetInfo == IP6T_SO_GET_INFO && kGetEntries == IP6T_SO_GET_ENTRIES);

bool IsV6(uint8_t family) {
  if (family != NFPROTO_IPV4 && family != NFPROTO_IPV6) throw Failure::Invalid("family: expected ip or ip6");
  return family == NFPROTO_IPV6;
}

template <size_t size>
std::string FixedText(const char (&text)[size]) {
  return std::string(text, strnlen(text, size));
}

// A chain begins with an entry whose target is ERROR with the chain's name; so does the end of the table.
template <typename Entry>
std::vector<std::string> Decode(const uint8_t* data, size_t length) {
  std::vector<std::string> chains;
  for (size_t offset = 0; offset < length;) {
    const size_t left = length - offset;
    Entry entry;
    if (left < sizeof entry) throw Malformed("iptables entry cut short");
    std::memcpy(&entry, data + offset, sizeof entry);
    const size_t size = entry.next_offset;
    const size_t at = entry.target_offset;
    if (size > left || at < sizeof entry || at + sizeof(xt_entry_target) > size) {
      throw Malformed("iptables entry with a wrong offset");
    }
    xt_error_target target{};
    std::memcpy(&target, data + offset + at, std::min(sizeof target, size - at));
    const bool last = size == left;
    if (!last && FixedText(target.target.u.user.name) == XT_ERROR_TARGET) chains.push_back(FixedText(target.errorname));
    offset += size;
  }
  return chains;
}

// A built-in chain ends with an entry that has the policy for its verdict: -NF_DROP - 1, or -NF_ACCEPT - 1.
template <typename Entry>
bool DropsAt(const uint8_t* data, size_t length, size_t offset) {
  Entry entry;
  if (offset > length || length - offset < sizeof entry) throw Malformed("iptables entry cut short");
  std::memcpy(&entry, data + offset, sizeof entry);
  const size_t at = entry.target_offset;
  if (at < sizeof entry || at > length - offset || sizeof(xt_standard_target) > length - offset - at) {
    throw Malformed("iptables entry with a wrong offset");
  }
  xt_standard_target target{};
  std::memcpy(&target, data + offset + at, sizeof target);
  return target.verdict == -NF_DROP - 1;
}

// Returns the errno, 0 when the kernel answered.
int Ask(const Fd& socket, int level, int option, void* answer, size_t size) {
  auto length = static_cast<socklen_t>(size);
  return getsockopt(socket.get(), level, option, answer, &length) == 0 ? 0 : errno;
}

}  // namespace

std::vector<std::string> DecodeLegacyChains(uint8_t family, const uint8_t* data, size_t length) {
  return IsV6(family) ? Decode<ip6t_entry>(data, length) : Decode<ipt_entry>(data, length);
}

namespace {

// The table's entries, and what the kernel says of them.
std::vector<uint8_t> ReadEntries(const NetNamespace& netns, const TableRef& table, ipt_getinfo& info) {
  const bool v6 = IsV6(table.family);
  if (table.table.size() >= sizeof info.name) throw Failure::Invalid("table: at most 31 bytes");
  // Any socket of the family will do; a raw one would need CAP_NET_RAW.
  const Fd socket = netns.Socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
  const int level = v6 ? static_cast<int>(IPPROTO_IPV6) : static_cast<int>(IPPROTO_IP);
  const std::string what = "iptables table " + table.table;
  for (int attempt = 1;; ++attempt) {
    std::memcpy(info.name, table.table.c_str(), table.table.size() + 1);
    int error = Ask(socket, level, kGetInfo, &info, sizeof info);
    if (error != 0) throw Failure::System(what, error);
    std::vector<uint8_t> answer(sizeof(ipt_get_entries) + info.size);
    // In place: it ends in an array without elements, which C++ does not know as a value.
    auto* const request = reinterpret_cast<ipt_get_entries*>(answer.data());
    std::memcpy(request->name, info.name, sizeof request->name);
    request->size = info.size;
    error = Ask(socket, level, kGetEntries, answer.data(), answer.size());
    if (error == 0) {
      answer.erase(answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(sizeof *request));
      return answer;
    }
    // EAGAIN: the table has another size by now.
    if (error != EAGAIN || attempt == kMostAttempts) throw Failure::System(what, error);
  }
}

}  // namespace

bool DecodeLegacyDrop(uint8_t family, const uint8_t* data, size_t length, size_t offset) {
  return IsV6(family) ? DropsAt<ip6t_entry>(data, length, offset) : DropsAt<ipt_entry>(data, length, offset);
}

std::vector<std::string> LegacyChains(const NetNamespace& netns, const TableRef& table) {
  ipt_getinfo info{};
  const std::vector<uint8_t> entries = ReadEntries(netns, table, info);
  return DecodeLegacyChains(table.family, entries.data(), entries.size());
}

bool LegacyForwardDrops(const NetNamespace& netns, const TableRef& table) {
  ipt_getinfo info{};
  const std::vector<uint8_t> entries = ReadEntries(netns, table, info);
  if ((info.valid_hooks & (1U << NF_INET_FORWARD)) == 0) return false;
  return DecodeLegacyDrop(table.family, entries.data(), entries.size(), info.underflow[NF_INET_FORWARD]);
}

}  // namespace nftp

#include "codec/legacy_table.h"

#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "codec/attr.h"
#include "codec/failure.h"

namespace nftp {

namespace {

// The entries of the two families match different fields but have the same structure.
struct Layout {
  size_t size;
  size_t target_offset;
  size_t next_offset;
};

template <typename Entry>
constexpr Layout LayoutOf() {
  return {sizeof(Entry), offsetof(Entry, target_offset), offsetof(Entry, next_offset)};
}

constexpr Layout kLayout4 = LayoutOf<ipt_entry>();
constexpr Layout kLayout6 = LayoutOf<ip6t_entry>();

const Layout& LayoutFor(uint8_t family) {
  if (family == NFPROTO_IPV4) return kLayout4;
  if (family == NFPROTO_IPV6) return kLayout6;
  throw Failure::Invalid("family: expected ip or ip6");
}

Failure NotUnderstood(const char* what) {
  return Failure("system", std::string("unsupported iptables table: ") + what, EBADMSG);
}

uint16_t Load16(const uint8_t* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

struct EntryView {
  const uint8_t* data;
  size_t size;
  size_t target;  // offset of the target within the entry

  // Up to `longest` bytes from the target's `offset` on, limited by the end of the entry.
  std::string_view TargetText(size_t offset, size_t longest) const {
    const size_t at = std::min(target + offset, size);
    const auto* text = reinterpret_cast<const char*>(data + at);
    return {text, strnlen(text, std::min(longest, size - at))};
  }
  std::string_view target_name() const {
    return TargetText(offsetof(xt_entry_target, u.user.name), XT_EXTENSION_MAXNAMELEN);
  }
  std::string_view error_name() const {
    return TargetText(offsetof(xt_error_target, errorname), XT_FUNCTION_MAXNAMELEN);
  }
  // Whether the entry is a chain's head or the end of the table.
  bool is_error() const { return target_name() == XT_ERROR_TARGET; }
  // Returns nothing if the target is an extension.
  std::optional<int32_t> verdict() const {
    if (target_name() != XT_STANDARD_TARGET) return std::nullopt;
    if (size - target < sizeof(xt_standard_target)) throw NotUnderstood("an iptables entry has a truncated verdict");
    return static_cast<int32_t>(Load32(data + target + offsetof(xt_standard_target, verdict)));
  }
};

// Views the first of the remaining entries.
EntryView ViewEntry(const Layout& layout, const uint8_t* data, size_t left) {
  if (left < layout.size) throw NotUnderstood("an iptables entry is truncated");
  const size_t size = Load16(data + layout.next_offset);
  const size_t target = Load16(data + layout.target_offset);
  if (size > left || target < layout.size || target + sizeof(xt_entry_target) > size) {
    throw NotUnderstood("an iptables entry has a wrong offset");
  }
  return {data, size, target};
}

constexpr std::array<const char*, NF_INET_NUMHOOKS> kBaseChains = {"PREROUTING", "INPUT", "FORWARD", "OUTPUT",
                                                                   "POSTROUTING"};

bool IsBase(const LegacyHooks& hooks, size_t hook) { return (hooks.valid & (1U << hook)) != 0; }

}  // namespace

LegacyTable::LegacyTable(uint8_t family, const LegacyHooks& hooks, const uint8_t* data, size_t length)
    : family_(family), hooks_(hooks), data_(data), length_(static_cast<uint32_t>(length)) {
  // Verdicts are offsets, too, and negative verdicts are not jumps.
  if (length > INT32_MAX) throw NotUnderstood("the iptables table exceeds 2 GiB");
  ReadEntries();
  ReadBaseChains();
  for (uint32_t index = 0; index < entries_.size(); ++index) ReadJump(index);
}

void LegacyTable::ReadEntries() {
  const Layout& layout = LayoutFor(family_);
  for (uint32_t offset = 0; offset < length_;) {
    const EntryView entry = ViewEntry(layout, data_ + offset, length_ - offset);
    const bool error = entry.is_error();
    if (offset + entry.size == length_) {
      if (!error) break;
      end_ = offset;
      if (!chains_.empty()) chains_.back().end = static_cast<uint32_t>(entries_.size());
      return;
    }
    const auto index = static_cast<uint32_t>(entries_.size());
    if (error) {
      if (!chains_.empty()) chains_.back().end = index;
      chains_.push_back({entry.error_name(), false, index, index});
    }
    entries_.push_back({offset, LegacyEntry::kNoChain, false});
    offset += static_cast<uint32_t>(entry.size);
  }
  throw NotUnderstood("the iptables table has no end");
}

uint32_t LegacyTable::IndexOf(uint32_t offset) const {
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), offset,
                                      [](const LegacyEntry& entry, uint32_t wanted) { return entry.offset < wanted; });
  if (found == entries_.end() || found->offset != offset) throw NotUnderstood("an iptables hook points to no entry");
  return static_cast<uint32_t>(found - entries_.begin());
}

// Built-in chains come before all others, one after the other.
void LegacyTable::ReadBaseChains() {
  std::vector<LegacyChain> base;
  for (size_t hook = 0; hook < kBaseChains.size(); ++hook) {
    if (!IsBase(hooks_, hook)) continue;
    const uint32_t policy = IndexOf(hooks_.underflow[hook]);
    if (VerdictAt(policy).value_or(0) >= 0) throw NotUnderstood("an iptables chain has no policy");
    base.push_back({kBaseChains[hook], true, IndexOf(hooks_.entry[hook]), policy + 1});
  }
  std::sort(base.begin(), base.end(), [](const auto& left, const auto& right) { return left.begin < right.begin; });
  uint32_t next = 0;
  for (const LegacyChain& chain : base) {
    if (chain.begin != next || chain.end <= chain.begin)
      throw NotUnderstood("the iptables table has a hook out of place");
    next = chain.end;
  }
  const auto behind = chains_.empty() ? static_cast<uint32_t>(entries_.size()) : chains_.front().begin;
  if (next != behind) throw NotUnderstood("the iptables table has rules outside of chains");
  base_chains_ = base.size();
  chains_.insert(chains_.begin(), base.begin(), base.end());
}

std::optional<int32_t> LegacyTable::VerdictAt(size_t entry) const {
  const uint32_t offset = OffsetOf(entry);
  return ViewEntry(LayoutFor(family_), data_ + offset, length_ - offset).verdict();
}

void LegacyTable::ReadJump(uint32_t index) {
  LegacyEntry& entry = entries_[index];
  const std::optional<int32_t> verdict = VerdictAt(index);
  // Negative verdicts are accept, drop, return and so on.
  if (!verdict || *verdict < 0) return;
  const auto offset = static_cast<uint32_t>(*verdict);
  if (offset == OffsetOf(index + 1)) {
    entry.falls_through = true;
    return;
  }
  // The jump goes to the entry after a chain's head.
  const auto chain =
      std::lower_bound(chains_.begin() + static_cast<std::ptrdiff_t>(base_chains_), chains_.end(), offset,
                       [this](const LegacyChain& one, uint32_t wanted) { return OffsetOf(one.begin + 1) < wanted; });
  if (chain == chains_.end() || chain->end - chain->begin < 2 || OffsetOf(chain->begin + 1) != offset) {
    throw NotUnderstood("an iptables rule jumps to no chain");
  }
  entry.to = static_cast<int32_t>(chain - chains_.begin());
}

uint32_t LegacyTable::VerdictOf(size_t entry) const {
  const uint32_t offset = OffsetOf(entry);
  const EntryView view = ViewEntry(LayoutFor(family_), data_ + offset, length_ - offset);
  return static_cast<uint32_t>(view.target + offsetof(xt_standard_target, verdict));
}

// A user-defined chain begins with an entry whose target is ERROR with the chain's name. The end of the table is such
// an entry, too.
std::vector<std::string> DecodeLegacyChains(uint8_t family, const uint8_t* data, size_t length) {
  const Layout& layout = LayoutFor(family);
  std::vector<std::string> chains;
  for (size_t offset = 0; offset < length;) {
    const EntryView entry = ViewEntry(layout, data + offset, length - offset);
    if (offset + entry.size < length && entry.is_error()) chains.emplace_back(entry.error_name());
    offset += entry.size;
  }
  return chains;
}

uint32_t CountLegacyRules(uint8_t family, const uint8_t* data, size_t length, std::string_view chain) {
  const Layout& layout = LayoutFor(family);
  uint32_t entries = 0;
  bool within = false;
  for (size_t offset = 0; offset < length;) {
    const EntryView entry = ViewEntry(layout, data + offset, length - offset);
    if (entry.is_error()) {
      within = offset + entry.size < length && entry.error_name() == chain;
    } else if (within) {
      ++entries;
    }
    offset += entry.size;
  }
  return entries > 0 ? entries - 1 : 0;
}

// A built-in chain ends with an entry whose verdict is the policy: -NF_DROP - 1 or -NF_ACCEPT - 1.
bool DecodeLegacyDrop(uint8_t family, const uint8_t* data, size_t length, size_t offset) {
  const Layout& layout = LayoutFor(family);
  if (offset > length) throw NotUnderstood("an iptables entry is truncated");
  return ViewEntry(layout, data + offset, length - offset).verdict() == -NF_DROP - 1;
}

}  // namespace nftp

#include "codec/legacy_table.h"

#include <linux/netfilter.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

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

}  // namespace

// A user-defined chain begins with an entry whose target is ERROR with the chain's name. The end of the table is such
// an entry, too. The built-in chains come first.
LegacyChains DecodeLegacyChains(uint8_t family, const uint8_t* data, size_t length) {
  const Layout& layout = LayoutFor(family);
  LegacyChains chains;
  uint32_t entries = 0;
  for (size_t offset = 0; offset < length;) {
    const EntryView entry = ViewEntry(layout, data + offset, length - offset);
    offset += entry.size;
    if (!entry.is_error()) {
      ++entries;
      continue;
    }
    if (!chains.names.empty()) chains.rules.push_back(entries > 0 ? entries - 1 : 0);
    if (offset < length) chains.names.emplace_back(entry.error_name());
    entries = 0;
  }
  // Only a malformed table has no end.
  chains.rules.resize(chains.names.size());
  return chains;
}

// A built-in chain ends with an entry whose verdict is the policy: -NF_DROP - 1 or -NF_ACCEPT - 1.
bool DecodeLegacyDrop(uint8_t family, const uint8_t* data, size_t length, size_t offset) {
  const Layout& layout = LayoutFor(family);
  if (offset > length) throw NotUnderstood("an iptables entry is truncated");
  return ViewEntry(layout, data + offset, length - offset).verdict() == -NF_DROP - 1;
}

}  // namespace nftp

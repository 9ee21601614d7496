// A table of the iptables that preceded nf_tables (ip_tables, ip6_tables). Its entries are in the form that getsockopt
// returns and setsockopt takes: structs of linux/netfilter/x_tables.h and linux/netfilter_ipv4/ip_tables.h. Pure.
#pragma once

#include <linux/netfilter.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nftp {

// Positions of a table's built-in chains among its entries, in bytes from the first entry: a part of ipt_getinfo.
struct LegacyHooks {
  uint32_t valid = 0;                                  // 1 << NF_INET_*; the offsets of other hooks are undefined
  std::array<uint32_t, NF_INET_NUMHOOKS> entry{};      // the first entry of the hook's chain
  std::array<uint32_t, NF_INET_NUMHOOKS> underflow{};  // its last entry, which has the policy
};

// An entry is a rule, the policy that ends a built-in chain, or the head that begins a user-defined chain.
struct LegacyEntry {
  static constexpr int32_t kNoChain = -1;

  uint32_t offset = 0;
  // Index of the chain that the rule jumps or goes to.
  int32_t to = kNoChain;
  // The rule has no target: its verdict is the offset of the next entry.
  bool falls_through = false;
};

struct LegacyChain {
  std::string_view name;
  bool base = false;
  // Range of the chain's entries, by index, without `end`. The first entry of a user-defined chain is its head.
  uint32_t begin = 0;
  uint32_t end = 0;
};

// The chains and jumps of a table's entries. The entries must outlive this object.
class LegacyTable {
 public:
  // Throws Failure for entries that iptables' own tools would not have written.
  LegacyTable(uint8_t family, const LegacyHooks& hooks, const uint8_t* data, size_t length);

  const LegacyHooks& hooks() const { return hooks_; }
  // All entries but the one that ends the table.
  const std::vector<LegacyEntry>& entries() const { return entries_; }
  // Chains in the order of their entries, so built-in chains come first.
  const std::vector<LegacyChain>& chains() const { return chains_; }
  const uint8_t* data() const { return data_; }
  // Offset of the entry that ends the table, and length of all entries.
  uint32_t end() const { return end_; }
  uint32_t length() const { return length_; }
  uint32_t SizeOf(size_t entry) const { return OffsetOf(entry + 1) - OffsetOf(entry); }
  // Returns the index of the entry at this offset. Throws Failure.
  uint32_t IndexOf(uint32_t offset) const;
  // Offset of the verdict in an entry that has a standard target.
  uint32_t VerdictOf(size_t entry) const;

 private:
  uint32_t OffsetOf(size_t entry) const { return entry < entries_.size() ? entries_[entry].offset : end_; }
  void ReadEntries();
  void ReadBaseChains();
  void ReadJump(uint32_t index);
  // Returns nothing if the entry's target is an extension.
  std::optional<int32_t> VerdictAt(size_t entry) const;

  uint8_t family_;
  LegacyHooks hooks_;
  const uint8_t* data_;
  uint32_t length_;
  uint32_t end_ = 0;
  std::vector<LegacyEntry> entries_;
  std::vector<LegacyChain> chains_;
  size_t base_chains_ = 0;
};

// Returns the names of the chains in a table's entries, without the built-in ones. Throws Failure if the bytes are not
// entries.
std::vector<std::string> DecodeLegacyChains(uint8_t family, const uint8_t* data, size_t length);

// Returns the number of rules in the user-defined chain of that name, without the return that ends it; 0 if there is no
// such chain. Throws Failure if the bytes are not entries.
uint32_t CountLegacyRules(uint8_t family, const uint8_t* data, size_t length, std::string_view chain);

// Whether the built-in chain that ends with the entry at `offset` drops by policy. Throws Failure if there is no entry.
bool DecodeLegacyDrop(uint8_t family, const uint8_t* data, size_t length, size_t offset);

}  // namespace nftp

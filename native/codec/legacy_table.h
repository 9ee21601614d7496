// A table of the iptables that came before nf_tables (ip_tables, ip6_tables): its entries as getsockopt hands them out
// and setsockopt takes them, structs of linux/netfilter/x_tables.h and linux/netfilter_ipv4/ip_tables.h. Pure.
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

// Where a table's built-in chains are among its entries, in bytes from the first one: a part of ipt_getinfo.
struct LegacyHooks {
  uint32_t valid = 0;                                  // 1 << NF_INET_*; of other hooks the offsets mean nothing
  std::array<uint32_t, NF_INET_NUMHOOKS> entry{};      // the first entry of the hook's chain
  std::array<uint32_t, NF_INET_NUMHOOKS> underflow{};  // its last one, which has the policy
};

// An entry is a rule, the policy that ends a chain, or the head that begins a user's one.
struct LegacyEntry {
  static constexpr int32_t kNoChain = -1;

  uint32_t offset = 0;
  // Index of the chain that it jumps or goes to.
  int32_t to = kNoChain;
  // A rule without a target: its verdict is the offset of the entry behind it.
  bool falls_through = false;
};

struct LegacyChain {
  std::string_view name;
  bool base = false;
  // Its entries by their index, `end` excluded; of a user's chain the first is the head.
  uint32_t begin = 0;
  uint32_t end = 0;
};

// The chains and jumps of a table's entries, which must outlive it.
class LegacyTable {
 public:
  // Throws Failure for what iptables' own tools would not have written.
  LegacyTable(uint8_t family, const LegacyHooks& hooks, const uint8_t* data, size_t length);

  const LegacyHooks& hooks() const { return hooks_; }
  // Without the one that ends the table.
  const std::vector<LegacyEntry>& entries() const { return entries_; }
  // In the order of their entries, and so with the built-in ones first.
  const std::vector<LegacyChain>& chains() const { return chains_; }
  const uint8_t* data() const { return data_; }
  // Where the entry that ends the table begins, and how long all of them are.
  uint32_t end() const { return end_; }
  uint32_t length() const { return length_; }
  uint32_t SizeOf(size_t entry) const { return OffsetOf(entry + 1) - OffsetOf(entry); }
  // The index of the entry that is there. Throws Failure.
  uint32_t IndexOf(uint32_t offset) const;
  // Where in an entry that has a standard target the verdict is.
  uint32_t VerdictOf(size_t entry) const;

 private:
  uint32_t OffsetOf(size_t entry) const { return entry < entries_.size() ? entries_[entry].offset : end_; }
  void ReadEntries();
  void ReadBaseChains();
  void ReadJump(uint32_t index);
  // Nothing when the entry's target is an extension's.
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

// The names of the chains in a table's entries, without the built-in ones. Throws Failure for what is no such thing.
std::vector<std::string> DecodeLegacyChains(uint8_t family, const uint8_t* data, size_t length);

// How many rules a user's chain of that name has, without the return that ends it; 0 where there is no such chain.
// Throws Failure for what are no entries.
uint32_t CountLegacyRules(uint8_t family, const uint8_t* data, size_t length, std::string_view chain);

// Whether the built-in chain that ends with the entry at `offset` drops by policy. Throws Failure for what is no entry.
bool DecodeLegacyDrop(uint8_t family, const uint8_t* data, size_t length, size_t offset);

}  // namespace nftp

// Removes one program's chains from a table of the older iptables and keeps everything else. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codec/legacy_table.h"

namespace nftp {

// The names of a program's chains in one table.
struct OwnChains {
  // Chains that built-in chains jump to. Such a jump is the program's own, too.
  std::vector<std::string> entries;
  std::vector<std::string> others;
  // Prefixes of the names of chains that exist in large numbers.
  std::vector<std::string> prefixes;
};

// A chain of the program that another program's rules use.
struct KeptChain {
  std::string chain;
  std::string user;  // "a rule of chain DOCKER"
};

struct LegacyRemoval {
  uint32_t chains = 0;  // how many go
  uint32_t jumps = 0;   // number of rules of built-in chains that jumped to them
  // Chains that stay, with everything that they lead to: chains that other rules jump to must keep their effect.
  std::vector<KeptChain> kept;

  // Hooks of the table without the removed chains; empty if nothing is removed.
  LegacyHooks hooks;
  // Former indices of the remaining entries, without the entry that ends the table.
  std::vector<uint32_t> left;
  // New position of each former entry; for a removed entry, the position of the next remaining one. The last is the
  // table's end.
  std::vector<uint32_t> moved;
  // Length of the new entries, in bytes.
  uint32_t length = 0;

  bool nothing() const { return chains == 0 && jumps == 0; }
};

// Plans which entries are removed and where the remaining ones move.
LegacyRemoval PlanRemoval(const LegacyTable& table, const OwnChains& own);

// Writes the new table's entries, `removal.length` bytes. In the remaining entries only the offsets of jumps change.
void WriteRemaining(const LegacyTable& table, const LegacyRemoval& removal, uint8_t* to);

}  // namespace nftp

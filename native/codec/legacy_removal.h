// One program's chains taken out of a table of the older iptables; everything else is kept. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codec/legacy_table.h"

namespace nftp {

// The names of a program's chains in one table.
struct OwnChains {
  // Those that built-in chains jump to: such a jump is the program's own, too.
  std::vector<std::string> entries;
  std::vector<std::string> others;
  // Of chains that are many.
  std::vector<std::string> prefixes;
};

// A chain of the program's that is in use by another one.
struct KeptChain {
  std::string chain;
  std::string user;  // "a rule of chain DOCKER"
};

struct LegacyRemoval {
  uint32_t chains = 0;  // how many go
  uint32_t jumps = 0;   // how many rules of built-in chains, which jumped to them
  // Stay, with all that they lead to: what others jump to must go on doing what it did.
  std::vector<KeptChain> kept;

  // Of the table without them; empty when nothing goes.
  LegacyHooks hooks;
  // The entries that are left, by their former index, without the one that ends the table.
  std::vector<uint32_t> left;
  // Where each former entry is in the new table; of one that goes, where the next one is. The end of the table is the
  // last.
  std::vector<uint32_t> moved;
  // How long the new entries are, bytes.
  uint32_t length = 0;

  bool nothing() const { return chains == 0 && jumps == 0; }
};

// What goes, and where that leaves the rest.
LegacyRemoval PlanRemoval(const LegacyTable& table, const OwnChains& own);

// The new table's entries, `removal.length` bytes. Those that are left are the same but for the offsets of jumps.
void WriteRemaining(const LegacyTable& table, const LegacyRemoval& removal, uint8_t* to);

}  // namespace nftp

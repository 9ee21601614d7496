// The tables of the iptables that came before nf_tables, in the kernel: read, and rid of one program's chains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "codec/legacy_removal.h"
#include "codec/model.h"
#include "socket/socket.h"

namespace nftp {

// All but the first of these read a table of ip_tables or ip6_tables whole, as the kernel hands it out in no other way.
// Ask only for tables that are named in /proc/net/ip_tables_names or ip6_tables_names: the kernel makes one that is not
// there. One whose entries are longer than `most_bytes` is not read. Throw Failure.

// A table's size, its number of entries, and where its built-in chains begin and end (IPT_SO_GET_INFO): the kernel
// tells these without the entries. They stay as they are until a process replaces the table.
std::vector<uint32_t> LegacyLayout(const NetNamespace& netns, const TableRef& table);

// Names of the chains in a table, without the built-in ones.
std::vector<std::string> LegacyChains(const NetNamespace& netns, const TableRef& table, uint64_t most_bytes);

// How many rules a user's chain of a table has; 0 where there is no such chain.
uint32_t LegacyRules(const NetNamespace& netns, const TableRef& table, const std::string& chain, uint64_t most_bytes);

// Whether the policy of the table's chain FORWARD is "drop"; false where it has no such chain.
bool LegacyForwardDrops(const NetNamespace& netns, const TableRef& table, uint64_t most_bytes);

struct LegacyRemovalOptions {
  // The file that iptables locks while it reads and writes tables (xtables.lock). It is not made where there is none.
  std::string lock_file;
  uint64_t most_bytes = 0;
};

struct LegacyOutcome {
  uint32_t chains = 0;
  uint32_t jumps = 0;
  std::vector<KeptChain> kept;
  // False when another process changed the table right behind: counters of the rules that are left begin at 0.
  bool counters_kept = true;
  // Why the lock was not taken; empty: it was.
  std::string unlocked;
};

// Takes a program's chains, and what jumps to them, out of a table, in one step for packets (IPT_SO_SET_REPLACE). Other
// programs' rules stay with their counters. Throws Failure, with EAGAIN when another process has the lock or keeps
// changing the table; the table is as it was then.
LegacyOutcome RemoveLegacyChains(const NetNamespace& netns, const TableRef& table, const OwnChains& own,
                                 const LegacyRemovalOptions& options);

}  // namespace nftp

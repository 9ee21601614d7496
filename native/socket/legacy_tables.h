// Reads the kernel's tables of the iptables that preceded nf_tables.
#pragma once

#include <cstdint>
#include <vector>

#include "codec/legacy_table.h"
#include "codec/model.h"
#include "socket/socket.h"

namespace nftp {

// Both functions throw Failure. Call them only for tables named in /proc/net/ip_tables_names or ip6_tables_names: the
// kernel creates a table that does not exist.

// Returns a table's size, its number of entries, and the positions of its built-in chains (IPT_SO_GET_INFO), which the
// kernel reports without the entries. They stay the same until a process replaces the table.
std::vector<uint32_t> LegacyLayout(const NetNamespace& netns, const TableRef& table);

struct LegacyTable {
  LegacyChains chains;
  // Whether the policy of the built-in chain FORWARD is "drop"; false if there is no such chain.
  bool forward_drops = false;
};

// Reads a whole table; the kernel offers no other way. Does not read a table whose entries are longer than
// `most_bytes`.
LegacyTable ReadLegacyTable(const NetNamespace& netns, const TableRef& table, uint64_t most_bytes);

}  // namespace nftp

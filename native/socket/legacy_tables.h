// Reads the kernel's tables of the iptables that preceded nf_tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "codec/model.h"
#include "socket/socket.h"

namespace nftp {

// All functions but the first read a whole table of ip_tables or ip6_tables; the kernel offers no other way. Call them
// only for tables named in /proc/net/ip_tables_names or ip6_tables_names: the kernel creates a table that does not
// exist. A table whose entries are longer than `most_bytes` is not read. They throw Failure.

// Returns a table's size, its number of entries, and the positions of its built-in chains (IPT_SO_GET_INFO), which the
// kernel reports without the entries. They stay the same until a process replaces the table.
std::vector<uint32_t> LegacyLayout(const NetNamespace& netns, const TableRef& table);

// Returns the names of a table's chains, without the built-in ones.
std::vector<std::string> LegacyChains(const NetNamespace& netns, const TableRef& table, uint64_t most_bytes);

// Returns the number of rules in a user-defined chain; 0 if there is no such chain.
uint32_t LegacyRules(const NetNamespace& netns, const TableRef& table, const std::string& chain, uint64_t most_bytes);

// Whether the policy of the table's chain FORWARD is "drop"; false if there is no such chain.
bool LegacyForwardDrops(const NetNamespace& netns, const TableRef& table, uint64_t most_bytes);

}  // namespace nftp

// The tables of the iptables that came before nf_tables: which chains their users made, and policies. Read only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "codec/model.h"
#include "socket/socket.h"

namespace nftp {

// Names of the chains in a table of ip_tables or ip6_tables, without the built-in ones. Ask only for tables that are
// named in /proc/net/ip_tables_names or ip6_tables_names: the kernel makes one that is not there. Throws Failure.
std::vector<std::string> LegacyChains(const NetNamespace& netns, const TableRef& table);

// Whether the policy of the table's chain FORWARD is "drop"; false where it has no such chain. Throws Failure.
bool LegacyForwardDrops(const NetNamespace& netns, const TableRef& table);

// Whether the built-in chain that ends with the entry at `offset` drops by policy. Throws Failure for what is no entry.
bool DecodeLegacyDrop(uint8_t family, const uint8_t* data, size_t length, size_t offset);

// The names from a table's entries, as the kernel hands them out. Throws Failure for what is no such thing.
std::vector<std::string> DecodeLegacyChains(uint8_t family, const uint8_t* data, size_t length);

}  // namespace nftp

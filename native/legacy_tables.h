// The tables of the iptables that came before nf_tables: which chains their users made. Read only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model.h"
#include "socket.h"

namespace nftp {

// Names of the chains in a table of ip_tables or ip6_tables, the built-in ones left out. Ask only for tables that are
// named in /proc/net/ip_tables_names or ip6_tables_names: the kernel makes one that is not there. Throws Failure.
std::vector<std::string> LegacyChains(const NetNamespace& netns, const TableRef& table);

// The same from a table's entries, as the kernel hands them out. Throws Failure for what is no such thing.
std::vector<std::string> DecodeLegacyChains(uint8_t family, const uint8_t* data, size_t length);

}  // namespace nftp

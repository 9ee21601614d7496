// A table of the iptables that preceded nf_tables (ip_tables, ip6_tables). Its entries are in the form that getsockopt
// returns and setsockopt takes: structs of linux/netfilter/x_tables.h and linux/netfilter_ipv4/ip_tables.h. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace nftp {

// The user-defined chains of a table.
struct LegacyChains {
  std::vector<std::string> names;
  std::vector<uint32_t> rules;  // number of rules in each, without the return that ends it
};

// Returns the chains in a table's entries, without the built-in ones. Throws Failure if the bytes are not entries.
LegacyChains DecodeLegacyChains(uint8_t family, const uint8_t* data, size_t length);

// Whether the built-in chain that ends with the entry at `offset` drops by policy. Throws Failure if there is no entry.
bool DecodeLegacyDrop(uint8_t family, const uint8_t* data, size_t length, size_t offset);

}  // namespace nftp

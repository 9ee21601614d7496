// A table of the iptables that preceded nf_tables (ip_tables, ip6_tables). Its entries are in the form that getsockopt
// returns and setsockopt takes: structs of linux/netfilter/x_tables.h and linux/netfilter_ipv4/ip_tables.h. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nftp {

// Returns the names of the chains in a table's entries, without the built-in ones. Throws Failure if the bytes are not
// entries.
std::vector<std::string> DecodeLegacyChains(uint8_t family, const uint8_t* data, size_t length);

// Returns the number of rules in the user-defined chain of that name, without the return that ends it; 0 if there is no
// such chain. Throws Failure if the bytes are not entries.
uint32_t CountLegacyRules(uint8_t family, const uint8_t* data, size_t length, std::string_view chain);

// Whether the built-in chain that ends with the entry at `offset` drops by policy. Throws Failure if there is no entry.
bool DecodeLegacyDrop(uint8_t family, const uint8_t* data, size_t length, size_t offset);

}  // namespace nftp

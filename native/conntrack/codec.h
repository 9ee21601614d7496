// Converts ctnetlink messages to records. Pure. Uses AttrReader, like the decoder of nf_tables messages. Based on
// net/netfilter/nf_conntrack_netlink.c.
#pragma once

#include <linux/netlink.h>

#include <cstdint>
#include <optional>

#include "codec/attr.h"
#include "conntrack/record.h"

namespace nftp {

// Returns false for an entry of a protocol other than IP (possible in Linux before 4.19). Throws Malformed.
bool DecodeConntrack(const nlmsghdr* message, ConntrackRecord* record);

// CTA_STATS_GLOBAL_*; Linux reports `max` since 4.18. Throws Malformed.
struct ConntrackTotals {
  uint32_t entries = 0;
  std::optional<uint32_t> max;
};
ConntrackTotals DecodeConntrackTotals(const nlmsghdr* message);

// Adds CTA_STATS_* of one CPU to the counts so far. Throws Malformed.
struct ConntrackCounts {
  uint64_t found = 0;
  uint64_t invalid = 0;
  uint64_t insert = 0;
  uint64_t insert_failed = 0;
  uint64_t drop = 0;
  uint64_t early_drop = 0;
  uint64_t error = 0;
};
void AddConntrackCounts(const nlmsghdr* message, ConntrackCounts* counts);

}  // namespace nftp

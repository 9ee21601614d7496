// ctnetlink messages to records. Pure. Written on AttrReader, as the decoder of nf_tables messages is.
// Source of facts: net/netfilter/nf_conntrack_netlink.c.
#pragma once

#include <linux/netlink.h>

#include <cstdint>
#include <optional>

#include "codec/attr.h"
#include "conntrack/record.h"

namespace nftp {

// False for an entry of a protocol that is not IP (Linux before 4.19 could have such). Throws Malformed.
bool DecodeConntrack(const nlmsghdr* message, ConntrackRecord* record);

// CTA_STATS_GLOBAL_*; `max` only from Linux 4.18 on. Throws Malformed.
struct ConntrackTotals {
  uint32_t entries = 0;
  std::optional<uint32_t> max;
};
ConntrackTotals DecodeConntrackTotals(const nlmsghdr* message);

// CTA_STATS_* of one CPU, added to what is there. Throws Malformed.
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

// NFT_MSG_TRACE: what one rule, or the end of one chain, did with a traced packet (net/netfilter/nf_tables_trace.c).
#pragma once

#include <linux/netlink.h>

#include <cstdint>
#include <optional>
#include <string>

#include "codec/model.h"

namespace nftp {

struct TraceEvent {
  uint8_t family = 0;    // of the table
  uint32_t nfproto = 0;  // of the packet
  uint32_t type = 0;     // NFT_TRACETYPE_*
  uint32_t id = 0;       // stays the same for a packet as long as the kernel keeps it in one skb
  std::string table;
  std::string chain;
  std::optional<uint64_t> rule;    // handle
  std::optional<Verdict> verdict;  // verdict of a rule or a return; its code without a queue's number
  std::optional<uint32_t> policy;  // of a chain's end
  std::optional<uint32_t> mark;
  // Present only in the first message of each base chain.
  std::optional<uint32_t> iif;
  std::optional<uint32_t> oif;
  std::optional<Bytes> network;    // at most 40 bytes
  std::optional<Bytes> transport;  // at most 20 bytes
  // Since Linux 6.16.
  std::optional<uint32_t> ct_id;     // as CTA_ID
  std::optional<uint32_t> ct_state;  // bits in the form of `ct state`
};

// Throws Malformed.
TraceEvent DecodeTrace(const nlmsghdr* message);

}  // namespace nftp

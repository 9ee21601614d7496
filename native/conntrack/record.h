// One conntrack entry as bytes of a fixed layout. The decoder makes it, it crosses to JS, and patterns compare it.
// src/nft/conntrack/encode.ts has the same layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nftp {

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "src/nft/conntrack/encode.ts reads records as little-endian"
#endif

// Bits of `parts`.
constexpr uint16_t kPartTimeout = 1;
constexpr uint16_t kPartCounters = 2;
constexpr uint16_t kPartStart = 4;
constexpr uint16_t kPartLabels = 8;

// Indices of a record's directions.
constexpr size_t kOriginal = 0;
constexpr size_t kReply = 1;

// Meaning of the fields for ports.
constexpr uint8_t kKindNone = 0;
constexpr uint8_t kKindPorts = 1;
constexpr uint8_t kKindIcmp = 2;

// Values of `event`.
constexpr uint32_t kEventNew = 1;
constexpr uint32_t kEventDestroy = 2;

struct ConntrackRecord {
  uint8_t family;  // AF_INET or AF_INET6
  uint8_t protocol;
  uint8_t kind;
  uint8_t state;  // the kernel's number + 1; 0: none
  uint16_t zone;
  uint16_t direction_zones[2];  // original, reply: zones for one direction only
  uint16_t parts;
  uint32_t status;
  uint32_t mark;
  uint32_t id;
  uint32_t timeout;
  // Original and reply. Source and destination port, or ICMP id and type << 8 | code. Host order.
  uint16_t ports[2][2];
  uint32_t event;
  // Original source and destination, reply source and destination. Network order, IPv4 padded with zeros.
  uint8_t addresses[4][16];
  // Fields from here on are valid only if `parts` says so. Packets and bytes, original and reply.
  uint64_t counters[4];
  uint64_t start;  // ns since 1970
  uint8_t labels[16];
};

// Size of a record up to the end of the addresses: keys and patterns end there.
constexpr size_t kConntrackKeyBytes = offsetof(ConntrackRecord, counters);
static_assert(kConntrackKeyBytes == 104 && kConntrackKeyBytes % sizeof(uint64_t) == 0);
static_assert(sizeof(ConntrackRecord) == 160 && alignof(ConntrackRecord) == 8);
static_assert(offsetof(ConntrackRecord, zone) == 4 && offsetof(ConntrackRecord, parts) == 10);
static_assert(offsetof(ConntrackRecord, status) == 12 && offsetof(ConntrackRecord, timeout) == 24);
static_assert(offsetof(ConntrackRecord, ports) == 28 && offsetof(ConntrackRecord, event) == 36);
static_assert(offsetof(ConntrackRecord, addresses) == 40 && offsetof(ConntrackRecord, labels) == 144);

using ConntrackRecords = std::vector<ConntrackRecord>;

}  // namespace nftp

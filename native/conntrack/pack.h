// Records cut to what is in them, for the way to JS: a dump of many entries is mostly addresses, and those of IPv4 need
// a quarter of the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "conntrack/record.h"

namespace nftp {

// Up to the addresses, and four addresses of 4 bytes.
constexpr size_t kConntrackHeadBytes = offsetof(ConntrackRecord, addresses);
constexpr size_t kConntrackShortBytes = kConntrackHeadBytes + 16;

// Records of one length: kConntrackShortBytes, kConntrackKeyBytes or all of a record.
struct ConntrackBlock {
  size_t stride = 0;
  std::vector<uint8_t> bytes;
};

class ConntrackPacker {
 public:
  void Add(const ConntrackRecord& record);
  // All that was added, in its order.
  std::vector<ConntrackBlock> Take() { return std::move(blocks_); }

 private:
  std::vector<ConntrackBlock> blocks_;
  // Of the last block. It only grows, so that entries of both families make no block each.
  size_t stride_ = kConntrackShortBytes;
};

}  // namespace nftp

// Truncates records to their content before they go to JS: a dump of many entries is mostly addresses, and IPv4
// addresses need a quarter of the space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "conntrack/record.h"

namespace nftp {

// Size of a record up to the addresses, plus four addresses of 4 bytes.
constexpr size_t kConntrackHeadBytes = offsetof(ConntrackRecord, addresses);
constexpr size_t kConntrackShortBytes = kConntrackHeadBytes + 16;

// Records of equal length: kConntrackShortBytes, kConntrackKeyBytes or a whole record.
struct ConntrackBlock {
  size_t stride = 0;
  std::vector<uint8_t> bytes;
};

class ConntrackPacker {
 public:
  void Add(const ConntrackRecord& record);
  // Returns everything that was added, in order.
  std::vector<ConntrackBlock> Take() { return std::move(blocks_); }

 private:
  std::vector<ConntrackBlock> blocks_;
  // Record length of the last block. It only grows, so that alternating families do not start one block per entry.
  size_t stride_ = kConntrackShortBytes;
};

}  // namespace nftp

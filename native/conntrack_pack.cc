#include "conntrack_pack.h"

#include <sys/socket.h>

#include <cstring>

namespace nftp {

namespace {

constexpr uint16_t kLongParts = kPartCounters | kPartStart | kPartLabels;

size_t StrideOf(const ConntrackRecord* records, size_t count) {
  bool v6 = false;
  for (size_t i = 0; i < count; ++i) {
    if ((records[i].parts & kLongParts) != 0) return sizeof(ConntrackRecord);
    v6 |= records[i].family != AF_INET;
  }
  return v6 ? kConntrackKeyBytes : kConntrackShortBytes;
}

}  // namespace

ConntrackBlock PackConntrack(const ConntrackRecord* records, size_t count) {
  ConntrackBlock block;
  block.stride = StrideOf(records, count);
  block.bytes.resize(count * block.stride);
  uint8_t* at = block.bytes.data();
  for (const ConntrackRecord* record = records; record != records + count; ++record, at += block.stride) {
    if (block.stride != kConntrackShortBytes) {
      std::memcpy(at, record, block.stride);
      continue;
    }
    std::memcpy(at, record, kConntrackHeadBytes);
    for (size_t i = 0; i < 4; ++i) std::memcpy(at + kConntrackHeadBytes + 4 * i, record->addresses[i], 4);
  }
  return block;
}

}  // namespace nftp

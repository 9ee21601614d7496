#include "conntrack/pack.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace nftp {

namespace {

// Records per block: a caller that keeps an entry keeps its whole block in memory.
constexpr size_t kBlock = 384;
constexpr uint16_t kLongParts = kPartCounters | kPartStart | kPartLabels;

size_t StrideOf(const ConntrackRecord& record) {
  if ((record.parts & kLongParts) != 0) return sizeof(ConntrackRecord);
  return record.family == AF_INET ? kConntrackShortBytes : kConntrackKeyBytes;
}

}  // namespace

void ConntrackPacker::Add(const ConntrackRecord& record) {
  stride_ = std::max(stride_, StrideOf(record));
  if (blocks_.empty() || blocks_.back().stride != stride_ || blocks_.back().bytes.size() == kBlock * stride_) {
    blocks_.emplace_back();
    blocks_.back().stride = stride_;
    blocks_.back().bytes.reserve(kBlock * stride_);
  }
  std::vector<uint8_t>& bytes = blocks_.back().bytes;
  const auto* from = reinterpret_cast<const uint8_t*>(&record);
  if (stride_ != kConntrackShortBytes) {
    bytes.insert(bytes.end(), from, from + stride_);
    return;
  }
  uint8_t packed[kConntrackShortBytes];
  std::memcpy(packed, from, kConntrackHeadBytes);
  for (size_t i = 0; i < 4; ++i) std::memcpy(packed + kConntrackHeadBytes + 4 * i, record.addresses[i], 4);
  bytes.insert(bytes.end(), packed, packed + sizeof packed);
}

}  // namespace nftp

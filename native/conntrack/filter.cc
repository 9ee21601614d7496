#include "conntrack/filter.h"

#include <cstring>

#include "codec/failure.h"

namespace nftp {

namespace {

constexpr size_t kWords = kConntrackKeyBytes / sizeof(uint64_t);
// Four patterns per address that may be at any end, times three if a state of three protocols is requested.
constexpr size_t kMaxPatterns = 1024;

uint64_t Word(const ConntrackRecord& record, size_t index) {
  uint64_t word;
  std::memcpy(&word, reinterpret_cast<const uint8_t*>(&record) + index * sizeof word, sizeof word);
  return word;
}

bool MatchesPattern(const ConntrackPattern& pattern, const ConntrackRecord& record) {
  uint64_t different = 0;
  for (size_t i = 0; i < kWords; ++i) {
    different |= (Word(record, i) & Word(pattern.mask, i)) ^ Word(pattern.value, i);
  }
  return different == 0;
}

}  // namespace

ConntrackFilter::ConntrackFilter(const uint8_t* bytes, size_t length) {
  constexpr size_t kPatternBytes = 2 * kConntrackKeyBytes;
  if (length == 0 || length % kPatternBytes != 0 || length > kMaxPatterns * kPatternBytes) {
    throw Failure::Invalid("filter: not a list of patterns");
  }
  patterns_.resize(length / kPatternBytes);
  for (ConntrackPattern& pattern : patterns_) {
    std::memcpy(&pattern.value, bytes, kConntrackKeyBytes);
    std::memcpy(&pattern.mask, bytes + kConntrackKeyBytes, kConntrackKeyBytes);
    bytes += kPatternBytes;
  }
  common_ = patterns_.front();
  auto* value = reinterpret_cast<uint8_t*>(&common_.value);
  auto* mask = reinterpret_cast<uint8_t*>(&common_.mask);
  for (const ConntrackPattern& pattern : patterns_) {
    const auto* other_value = reinterpret_cast<const uint8_t*>(&pattern.value);
    const auto* other_mask = reinterpret_cast<const uint8_t*>(&pattern.mask);
    for (size_t i = 0; i < kConntrackKeyBytes; ++i) {
      // Keep the bits that both patterns compare and for which both require the same value.
      mask[i] = static_cast<uint8_t>(mask[i] & other_mask[i] & ~(value[i] ^ other_value[i]));
      value[i] &= mask[i];
    }
  }
}

bool ConntrackFilter::Matches(const ConntrackRecord& record) const {
  for (const ConntrackPattern& pattern : patterns_) {
    if (MatchesPattern(pattern, record)) return true;
  }
  return false;
}

}  // namespace nftp

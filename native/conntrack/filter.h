// Selects entries with patterns over the bytes of a record. src/nft/conntrack/compile-filter.ts makes the patterns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "conntrack/record.h"

namespace nftp {

// Matches the records that equal `value` after masking. Covers up to kConntrackKeyBytes; the remaining bytes are zero.
struct ConntrackPattern {
  ConntrackRecord value{};
  ConntrackRecord mask{};
};

// Matches a record if one of its patterns matches.
class ConntrackFilter {
 public:
  // Takes value and mask of each pattern, kConntrackKeyBytes each. Throws Failure "invalid".
  ConntrackFilter(const uint8_t* bytes, size_t length);

  bool Matches(const ConntrackRecord& record) const;
  // The conditions that all patterns share.
  const ConntrackPattern& common() const { return common_; }

 private:
  std::vector<ConntrackPattern> patterns_;
  ConntrackPattern common_;
};

}  // namespace nftp

// Which entries are meant: patterns over the bytes of a record, made by src/conntrack/table/filter.ts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "conntrack/record.h"

namespace nftp {

// Matches the records that, masked, are `value`; up to kConntrackKeyBytes, what follows is zero.
struct ConntrackPattern {
  ConntrackRecord value{};
  ConntrackRecord mask{};
};

// Matches what one of its patterns matches.
class ConntrackFilter {
 public:
  // Value and mask of each pattern, kConntrackKeyBytes each. Throws Failure "invalid".
  ConntrackFilter(const uint8_t* bytes, size_t length);

  bool Matches(const ConntrackRecord& record) const;
  // What all of them demand.
  const ConntrackPattern& common() const { return common_; }

 private:
  std::vector<ConntrackPattern> patterns_;
  ConntrackPattern common_;
};

}  // namespace nftp

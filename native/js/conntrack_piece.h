// The piece of a conntrack dump that one read hands over.
#pragma once

#include <napi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "conntrack/dump.h"
#include "conntrack/pack.h"
#include "conntrack/prefilter.h"
#include "conntrack/record.h"

namespace nftp {

struct ConntrackPiece {
  std::vector<ConntrackBlock> blocks;
  bool done = false;
  uint64_t seen = 0;
  bool interrupted = false;
  // Entries of this piece that the filter matches, prefiltered or not, and how many of them have been answered.
  uint64_t matched = 0;
  uint64_t answered = 0;
};

// Collects the entries that a dump hands over.
class ConntrackPieceBuilder {
 public:
  // `prefilter` may be null.
  void Add(const ConntrackRecord& record, const ConntrackPrefilter* prefilter);
  // Notes that a datagram was read completely.
  void EndDatagram() { ++datagrams_; }

  bool full() const;
  ConntrackPiece Take(bool done, const ConntrackReading& reading);

 private:
  ConntrackPiece piece_;
  ConntrackPacker packer_;
  size_t entries_ = 0;
  size_t datagrams_ = 0;
};

// Main thread only.
Napi::Value ToJs(Napi::Env env, const ConntrackPiece& piece);

}  // namespace nftp

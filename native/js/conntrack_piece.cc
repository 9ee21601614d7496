#include "js/conntrack_piece.h"

#include <linux/netfilter/nf_conntrack_common.h>

#include <utility>

#include "js/conntrack_values.h"
#include "js/writer.h"

namespace nftp {

namespace {

// Entries per read: 1 ms of work for the main thread.
constexpr size_t kPieceEntries = 1536;
// Entries are handed over after this many datagrams, which take the kernel 5 ms.
constexpr size_t kPieceDatagrams = 25;

}  // namespace

void ConntrackPieceBuilder::Add(const ConntrackRecord& record, const ConntrackPrefilter* prefilter) {
  ++piece_.matched;
  if ((record.status & IPS_SEEN_REPLY) != 0) ++piece_.answered;
  if (prefilter != nullptr && prefilter->Skips(record)) return;
  packer_.Add(record);
  ++entries_;
}

bool ConntrackPieceBuilder::full() const {
  return entries_ >= kPieceEntries || (entries_ > 0 && datagrams_ >= kPieceDatagrams);
}

ConntrackPiece ConntrackPieceBuilder::Take(bool done, const ConntrackReading& reading) {
  piece_.blocks = packer_.Take();
  piece_.done = done;
  piece_.seen = reading.seen();
  piece_.interrupted = reading.interrupted();
  return std::move(piece_);
}

Napi::Value ToJs(Napi::Env env, const ConntrackPiece& piece) {
  Napi::Object object = Napi::Object::New(env);
  Put(object, "blocks", piece.blocks);
  object.Set("done", piece.done);
  Put(object, "seen", static_cast<double>(piece.seen));
  object.Set("interrupted", piece.interrupted);
  Put(object, "matched", static_cast<double>(piece.matched));
  Put(object, "answered", static_cast<double>(piece.answered));
  return object;
}

}  // namespace nftp

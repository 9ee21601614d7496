#include "conntrack_dump.h"

#include <linux/netfilter/nfnetlink.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "conntrack_codec.h"
#include "dump.h"
#include "message_decoder.h"

namespace nftp {

namespace {

constexpr uint32_t kSeq = 1;
// What is fetched at once, and a last datagram on top: 1.5 ms of the kernel's work.
constexpr size_t kPieceBytes = 1 << 18;

// The size of the kernel's one hash table, which all namespaces share. ctnetlink walks it by the number of the bucket
// and does not notice when it is resized (NLM_F_DUMP_INTR it never sets): entries are then missed.
std::string Buckets() {
  std::ifstream file("/proc/sys/net/netfilter/nf_conntrack_buckets");
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

ConntrackDump::ConntrackDump(const NetNamespace& netns, ConntrackFilter filter, std::atomic<bool>* plain)
    : netns_(netns), filter_(std::move(filter)), plain_(plain) {}

void ConntrackDump::Start() {
  asked_plain_ = plain_->load();
  buckets_ = Buckets();
  socket_ = std::make_unique<ConntrackSocket>(netns_);
  ConntrackRequests requests;
  requests.Dump(filter_.common(), asked_plain_, kSeq);
  socket_->Send(requests);
}

bool ConntrackProgress::Take(const nlmsghdr* message) {
  if (message->nlmsg_seq != kSeq) return true;
  if ((message->nlmsg_flags & NLM_F_DUMP_INTR) != 0) interrupted_ = true;
  if (message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR) {
    const int error = message->nlmsg_type == NLMSG_DONE ? ErrorOfDone(message) : DecodeError(message).error;
    if (error != 0) throw ConntrackFailure(error);
    return false;
  }
  if (NFNL_SUBSYS_ID(message->nlmsg_type) != NFNL_SUBSYS_CTNETLINK) throw Malformed("not a message of ctnetlink");
  ++seen_;
  return true;
}

ConntrackPiece ConntrackDump::Fetch() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ConntrackPiece piece;
  if (!done_ && !socket_) Start();
  // Not std::make_unique, which would write zeros first.
  if (!done_) piece.bytes.reset(new uint8_t[kPieceBytes + kConntrackDatagram]);
  size_t used = 0;
  while (!done_ && used < kPieceBytes) {
    try {
      const size_t got = socket_->Receive(piece.bytes.get() + used, kConntrackDatagram);
      done_ = !EachConntrackMessage(piece.bytes.get() + used, got,
                                    [this](const auto* message) { return progress_.Take(message); });
      piece.datagrams.push_back(got);
      used += Align4(got);
    } catch (const Failure& failure) {
      const bool unknown = failure.error() == EOPNOTSUPP || failure.error() == EINVAL;
      if (!unknown || asked_plain_ || progress_.seen() != 0) throw;
      plain_->store(true);
      Start();
    }
  }
  if (done_ && socket_) {
    socket_.reset();
    if (Buckets() != buckets_) progress_.Interrupt();
  }
  piece.done = done_;
  piece.seen = progress_.seen();
  piece.interrupted = progress_.interrupted();
  return piece;
}

void ReadConntrackPiece(const ConntrackPiece& piece, const ConntrackFilter& filter,
                        const std::function<void(const ConntrackRecord&)>& on_record) {
  ConntrackRecord record;
  size_t at = 0;
  for (const size_t length : piece.datagrams) {
    EachConntrackMessage(piece.bytes.get() + at, length, [&](const nlmsghdr* message) {
      if (message->nlmsg_seq != kSeq) return true;
      if (message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR) return false;
      // What the kernel was asked for is looked at again: an older one passes over filters that it does not know.
      if (DecodeConntrack(message, &record) && filter.Matches(record)) on_record(record);
      return true;
    });
    at += Align4(length);
  }
}

}  // namespace nftp

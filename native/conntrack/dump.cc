#include "conntrack/dump.h"

#include <linux/netfilter/nfnetlink.h>

#include <cerrno>
#include <utility>

#include "codec/message_decoder.h"
#include "conntrack/codec.h"
#include "socket/dump.h"
#include "socket/socket.h"

namespace nftp {

namespace {

constexpr uint32_t kSeq = 1;

// Size of the kernel's one hash table, which all namespaces share. ctnetlink walks it by bucket number and does not
// notice a resize (it never sets NLM_F_DUMP_INTR). A resize during a dump makes it miss entries.
std::string Buckets() { return ReadFirstLine("/proc/sys/net/netfilter/nf_conntrack_buckets"); }

}  // namespace

bool ConntrackReading::Take(const nlmsghdr* message) {
  if ((message->nlmsg_flags & NLM_F_DUMP_INTR) != 0) interrupted_ = true;
  if (message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR) {
    const int error = message->nlmsg_type == NLMSG_DONE ? ErrorOfDone(message) : DecodeError(message).error;
    if (error != 0) throw ConntrackFailure(error);
    return false;
  }
  if (NFNL_SUBSYS_ID(message->nlmsg_type) != NFNL_SUBSYS_CTNETLINK)
    throw Malformed("the message is not from ctnetlink");
  ++seen_;
  return true;
}

bool ConntrackReading::Read(const uint8_t* bytes, size_t length, const ConntrackFilter& filter,
                            const OnConntrackRecord& on_record) {
  ConntrackRecord record;
  return EachConntrackMessage(bytes, length, [&](const nlmsghdr* message) {
    if (message->nlmsg_seq != kSeq) return true;
    if (!Take(message)) return false;
    // Check the filter again here: an older kernel ignores filters that it does not know.
    if (DecodeConntrack(message, &record) && filter.Matches(record)) on_record(record);
    return true;
  });
}

ConntrackDump::ConntrackDump(ConntrackSockets* sockets, ConntrackFilter filter, std::atomic<bool>* plain)
    : sockets_(sockets), filter_(std::move(filter)), plain_(plain) {}

void ConntrackDump::Start() {
  asked_plain_ = plain_->load();
  buckets_ = Buckets();
  socket_ = sockets_->Take();
  ConntrackRequests requests;
  requests.Dump(filter_.common(), asked_plain_, kSeq);
  socket_->Send(requests);
}

void ConntrackDump::Receive(const OnConntrackRecord& on_record) {
  const auto [bytes, length] = socket_->Receive();
  done_ = !reading_.Read(bytes, length, filter_, on_record);
  if (!done_) return;
  sockets_->GiveBack(std::move(socket_));
  if (Buckets() != buckets_) reading_.Interrupt();
}

void ConntrackDump::Next(const OnConntrackRecord& on_record) {
  if (done_) return;
  try {
    if (!socket_) Start();
    // The reader may pause for any time between two pieces.
    if (!socket_->alive()) throw ConntrackFailure(EBADF);
    Receive(on_record);
  } catch (const Failure& failure) {
    socket_.reset();
    const bool unknown = failure.error() == EOPNOTSUPP || failure.error() == EINVAL;
    if (!unknown || asked_plain_ || reading_.seen() != 0) {
      done_ = true;
      throw;
    }
    plain_->store(true);
  }
}

}  // namespace nftp

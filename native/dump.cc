#include "dump.h"

#include <linux/netfilter/nf_tables.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>

#include "message_decoder.h"
#include "op_codec.h"

namespace nftp {

namespace {

// The kernel fills at most 32 KiB per datagram of a dump, or one object if that is larger.
constexpr size_t kDumpBuffer = 1 << 18;
constexpr size_t kRequestRoom = 2048;

enum class Answer { Complete, Interrupted };

Failure RequestFailure(const nlmsghdr* request, const char* action, int error) {
  // nfnetlink answers EINVAL for a subsystem that it does not have; NFT_MSG_GETGEN has nothing else that could be
  // invalid.
  if (error == EINVAL && request->nlmsg_type == (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN)) {
    return Failure(
        "no-nftables",
        std::string(action) + ": " + DescribeErrno(error) + "; the kernel has no nf_tables (CONFIG_NF_TABLES)", error);
  }
  return Failure::System(action, error);
}

Answer Ask(const NetlinkSocket& socket, const nlmsghdr* request, const char* action,
           const std::function<void(const nlmsghdr*)>& on_message, std::vector<uint8_t>& buffer) {
  const bool dump = (request->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
  if (const int error = socket.Send(request, request->nlmsg_len); error != 0) throw Failure::System(action, error);
  for (;;) {
    const ssize_t got = socket.Receive(buffer.data(), buffer.size(), 0);
    if (got < 0) throw Failure::System(action, static_cast<int>(-got));
    int left = static_cast<int>(got);
    for (auto* message = reinterpret_cast<const nlmsghdr*>(buffer.data()); mnl_nlmsg_ok(message, left);
         message = mnl_nlmsg_next(message, &left)) {
      if ((message->nlmsg_flags & NLM_F_DUMP_INTR) != 0 && dump) return Answer::Interrupted;
      if (message->nlmsg_type == NLMSG_ERROR) {
        const int error = DecodeError(message).error;
        if (error != 0) throw RequestFailure(request, action, error);
        return Answer::Complete;
      }
      if (message->nlmsg_type == NLMSG_DONE) {
        if (const int error = ErrorOfDone(message); error != 0) throw RequestFailure(request, action, error);
        return Answer::Complete;
      }
      on_message(message);
      if (!dump) return Answer::Complete;
    }
  }
}

}  // namespace

int ErrorOfDone(const nlmsghdr* message) {
  if (message->nlmsg_len < NLMSG_LENGTH(sizeof(int32_t))) return 0;
  int32_t error;
  std::memcpy(&error, NLMSG_DATA(message), sizeof error);
  // INT_MIN has no positive twin.
  return error < 0 ? -std::max(error, -INT32_MAX) : 0;
}

NfTablesRequest::NfTablesRequest(uint16_t type, uint16_t flags, uint8_t family)
    : buffer_(kRequestRoom),
      writer_(BeginMessage(buffer_.data(), type, flags, family, 1), buffer_.data() + buffer_.size()) {}

void RunRequest(ReadSockets& sockets, const nlmsghdr* request, const char* action, const std::function<void()>& reset,
                const std::function<void(const nlmsghdr*)>& on_message, bool absent_is_empty) {
  std::vector<uint8_t> buffer(kDumpBuffer);
  for (int attempt = 0; attempt <= kMaxRestarts; ++attempt) {
    reset();
    std::unique_ptr<NetlinkSocket> socket = sockets.Take();
    try {
      // One that was interrupted or failed goes, and the rest of its answer with it.
      if (Ask(*socket, request, action, on_message, buffer) == Answer::Complete) {
        return sockets.GiveBack(std::move(socket));
      }
    } catch (const Failure& failure) {
      if (absent_is_empty && failure.error() == ENOENT) return reset();
      throw;
    }
  }
  throw Failure(
      "interrupted",
      std::string(action) + ": interrupted by changes " + std::to_string(kMaxRestarts + 1) + " times in a row", EINTR);
}

}  // namespace nftp

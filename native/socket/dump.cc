#include "socket/dump.h"

#include <linux/netfilter/nf_tables.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>

#include "codec/message_decoder.h"
#include "codec/op_codec.h"

namespace nftp {

namespace {

// The kernel fills at most 32 KiB per datagram of a dump, or one object if that is larger.
constexpr size_t kDumpBuffer = 1 << 18;
// Any other answer is one object (NLMSG_GOODSIZE) or an error, which echoes the request.
constexpr size_t kReplyBuffer = 1 << 14;
constexpr size_t kRequestRoom = 2048;

enum class Answer { Complete, Absent, Interrupted };

Failure RequestFailure(const nlmsghdr* request, const char* action, int error) {
  // nfnetlink answers EINVAL for a missing subsystem; NFT_MSG_GETGEN contains nothing else that could be invalid.
  if (error == EINVAL && request->nlmsg_type == (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN)) {
    return Failure(
        "no-nftables",
        std::string(action) + ": " + DescribeErrno(error) + "; the kernel has no nf_tables (CONFIG_NF_TABLES)", error);
  }
  return Failure::System(action, error);
}

bool IsDump(const nlmsghdr* request) { return (request->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP; }

// Classifies an error that is an answer in itself, after which the socket may be used again. Throws Failure for any
// other error.
Answer AnswerOf(const nlmsghdr* request, const char* action, int error, bool absent_is_empty) {
  if (error == 0) return Answer::Complete;
  if (error == ENOENT && absent_is_empty) return Answer::Absent;
  throw RequestFailure(request, action, error);
}

Answer Ask(const NetlinkSocket& socket, const nlmsghdr* request, const char* action,
           const std::function<void(const nlmsghdr*)>& on_message, bool absent_is_empty, uint8_t* buffer, size_t room) {
  const bool dump = IsDump(request);
  if (const int error = socket.Send(request, request->nlmsg_len); error != 0) throw Failure::System(action, error);
  for (;;) {
    const ssize_t got = socket.Receive(buffer, room, 0);
    if (got < 0) throw Failure::System(action, static_cast<int>(-got));
    int left = static_cast<int>(got);
    for (auto* message = reinterpret_cast<const nlmsghdr*>(buffer); mnl_nlmsg_ok(message, left);
         message = mnl_nlmsg_next(message, &left)) {
      if ((message->nlmsg_flags & NLM_F_DUMP_INTR) != 0 && dump) return Answer::Interrupted;
      if (message->nlmsg_type == NLMSG_ERROR) {
        return AnswerOf(request, action, DecodeError(message).error, absent_is_empty);
      }
      if (message->nlmsg_type == NLMSG_DONE) {
        return AnswerOf(request, action, ErrorOfDone(message), absent_is_empty);
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
  // INT_MIN has no positive counterpart.
  return error < 0 ? -std::max(error, -INT32_MAX) : 0;
}

NfTablesRequest::NfTablesRequest(uint16_t type, uint16_t flags, uint8_t family)
    : buffer_(kRequestRoom),
      writer_(BeginMessage(buffer_.data(), type, flags, family, 1), buffer_.data() + buffer_.size()) {}

void RunRequest(ReadSockets& sockets, const nlmsghdr* request, const char* action, const std::function<void()>& reset,
                const std::function<void(const nlmsghdr*)>& on_message, bool absent_is_empty) {
  const size_t room = IsDump(request) ? kDumpBuffer : kReplyBuffer;
  // Not a vector, which would clear it first: requests for the generation are frequent, and the answer has 40 bytes.
  const std::unique_ptr<uint8_t[]> buffer(new uint8_t[room]);
  for (int attempt = 0; attempt <= kMaxRestarts; ++attempt) {
    reset();
    std::unique_ptr<NetlinkSocket> socket = sockets.Take();
    const Answer answer = Ask(*socket, request, action, on_message, absent_is_empty, buffer.get(), room);
    // A socket whose dump was interrupted or failed is closed, and the rest of the answer with it.
    if (answer == Answer::Interrupted) continue;
    if (answer == Answer::Absent) reset();
    return sockets.GiveBack(std::move(socket));
  }
  throw Failure(
      "interrupted",
      std::string(action) + ": interrupted by changes " + std::to_string(kMaxRestarts + 1) + " times in a row", EINTR);
}

}  // namespace nftp

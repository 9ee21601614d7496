// Read requests, restarted if the kernel says that the dump was interrupted.
#pragma once

#include <linux/netlink.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "codec/attr.h"
#include "socket/socket.h"
#include "socket/socket_pool.h"

namespace nftp {

// A request to nf_tables with room for a few names.
class NfTablesRequest {
 public:
  NfTablesRequest(uint16_t type, uint16_t flags, uint8_t family);

  const nlmsghdr* message() const { return reinterpret_cast<const nlmsghdr*>(buffer_.data()); }
  AttrWriter& writer() { return writer_; }

 private:
  std::vector<uint8_t> buffer_;
  AttrWriter writer_;
};

// Sockets of one protocol.
using ReadSockets = SocketPool<NetlinkSocket>;

// Reads that usually run at the same time: one per family.
constexpr size_t kIdleReadSockets = 2;

// Sends `request` and passes every message of the answer to `on_message`. `reset` is called before each attempt: a dump
// that the kernel marks NLM_F_DUMP_INTR is repeated, at most kMaxRestarts times. Throws Failure. With
// `absent_is_empty`, ENOENT is an answer without messages.
constexpr int kMaxRestarts = 10;
void RunRequest(ReadSockets& sockets, const nlmsghdr* request, const char* action, const std::function<void()>& reset,
                const std::function<void(const nlmsghdr*)>& on_message, bool absent_is_empty = false);

// Returns the error of a started dump, which comes in its last message, NLMSG_DONE, or 0.
int ErrorOfDone(const nlmsghdr* message);

}  // namespace nftp

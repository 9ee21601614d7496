// Sends one netlink message to the kernel and returns the whole answer as bytes. For rare requests, whose codec is in
// JavaScript (src/netlink/).
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/model.h"
#include "socket/socket.h"

namespace nftp {

// Returns the messages of the answer one after the other, with netlink's padding; empty if the answer is only an
// acknowledgement. `protocol` is one of NETLINK_ROUTE, NETLINK_NETFILTER and NETLINK_GENERIC. A dump that the kernel
// marks as interrupted is repeated. Throws Failure: "invalid" unless `request` is one whole message that wants an
// answer (NLM_F_ACK, NLM_F_DUMP or a read request), otherwise the kernel's errno.
Bytes Exchange(const NetNamespace& netns, int protocol, const uint8_t* request, size_t length);

}  // namespace nftp

// One netlink message to the kernel, and all that it answers, as bytes. For what is asked seldom: JavaScript has the
// codec (src/netlink/).
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/model.h"
#include "socket/socket.h"

namespace nftp {

// The messages of the answer behind each other, padded as netlink pads them; empty when there is an acknowledgement
// alone. `protocol` is one of NETLINK_ROUTE, NETLINK_NETFILTER and NETLINK_GENERIC. A dump that the kernel marks as
// interrupted is read again. Throws Failure: "invalid" when `request` is not one whole message that wants an answer
// (NLM_F_ACK or NLM_F_DUMP, or a request that reads), else the kernel's errno.
Bytes Exchange(const NetNamespace& netns, int protocol, const uint8_t* request, size_t length);

}  // namespace nftp

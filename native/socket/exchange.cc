#include "socket/exchange.h"

#include <linux/netlink.h>

#include <cstring>
#include <memory>

#include "codec/attr.h"
#include "codec/failure.h"
#include "socket/dump.h"

namespace nftp {

Bytes Exchange(const NetNamespace& netns, int protocol, const uint8_t* request, size_t length) {
  nlmsghdr header;
  if (length < sizeof header) throw Failure::Invalid("request: it is shorter than a netlink header");
  std::memcpy(&header, request, sizeof header);
  if (header.nlmsg_len != length) throw Failure::Invalid("request: expected exactly one message");
  if ((header.nlmsg_flags & NLM_F_REQUEST) == 0) throw Failure::Invalid("request: the flag NLM_F_REQUEST is missing");
  // Messages must be aligned, wherever the bytes came from.
  Bytes aligned(request, request + length);
  ReadSockets sockets(1, [&netns, protocol] {
    auto socket = std::make_unique<NetlinkSocket>(netns, protocol);
    socket->WantExtendedAcks();
    return socket;
  });
  Bytes answer;
  RunRequest(
      sockets, reinterpret_cast<const nlmsghdr*>(aligned.data()), "netlink request", [&answer] { answer.clear(); },
      [&answer](const nlmsghdr* message) {
        const auto* bytes = reinterpret_cast<const uint8_t*>(message);
        answer.insert(answer.end(), bytes, bytes + message->nlmsg_len);
        answer.resize(Align4(answer.size()));
      });
  return answer;
}

}  // namespace nftp

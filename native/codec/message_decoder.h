// nf_tables messages, as dumps and events carry them, to structs. Written on AttrReader and not on libnftnl, whose
// parsers exit() when an attribute has another size than they expect and drop what they do not know.
#pragma once

#include <linux/netlink.h>

#include <optional>
#include <string>
#include <string_view>

#include "codec/attr.h"
#include "codec/model.h"

namespace nftp {

TableInfo DecodeTable(const nlmsghdr* message);
ChainInfo DecodeChain(const nlmsghdr* message);
// Its table alone, which points into the message.
std::string_view TableOfChain(const nlmsghdr* message);
RuleInfo DecodeRule(const nlmsghdr* message);
SetDump DecodeSet(const nlmsghdr* message);
GenInfo DecodeGen(const nlmsghdr* message);

// Family of the message's nfgenmsg.
uint8_t FamilyOf(const nlmsghdr* message);
// res_id of the message's nfgenmsg: the low 16 bits of the generation, in whatever order the kernel wrote them.
uint16_t ResourceOf(const nlmsghdr* message);

// NLMSG_ERROR with its extended-ACK attributes.
struct ErrorReply {
  int error = 0;  // positive errno, 0: an acknowledgement
  uint32_t seq = 0;
  std::string text;                // NLMSGERR_ATTR_MSG
  std::optional<uint32_t> offset;  // NLMSGERR_ATTR_OFFS, from the start of the message at fault
};
ErrorReply DecodeError(const nlmsghdr* message);

// Just enough of a change event. `name` and `table` point into the message.
struct EventView {
  uint8_t family = 0;
  std::string_view table;
  std::string_view name;
  std::optional<uint64_t> handle;
  uint32_t elements = 0;
};
// `operation` is NFNL_MSG_TYPE. False when it is no event of an object that we tell about.
bool DecodeEvent(const nlmsghdr* message, EventView* event);

}  // namespace nftp

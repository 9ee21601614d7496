// Converts nf_tables messages of dumps and events to structs. Uses AttrReader instead of libnftnl, whose parsers call
// exit() if an attribute has an unexpected size, and drop attributes that they do not know.
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
// Reads only the table's name, which points into the message.
std::string_view TableOfChain(const nlmsghdr* message);
RuleInfo DecodeRule(const nlmsghdr* message);
SetDump DecodeSet(const nlmsghdr* message);
ObjectInfo DecodeObject(const nlmsghdr* message);
GenInfo DecodeGen(const nlmsghdr* message);

// Returns the family in the message's nfgenmsg.
uint8_t FamilyOf(const nlmsghdr* message);
// Returns res_id of the message's nfgenmsg: the low 16 bits of the generation, in the byte order that the kernel used.
uint16_t ResourceOf(const nlmsghdr* message);

// NLMSG_ERROR with its extended-ACK attributes.
struct ErrorReply {
  int error = 0;  // positive errno, 0: an acknowledgement
  uint32_t seq = 0;
  std::string text;                // NLMSGERR_ATTR_MSG
  std::optional<uint32_t> offset;  // NLMSGERR_ATTR_OFFS, from the start of the message at fault
};
ErrorReply DecodeError(const nlmsghdr* message);

// The parts of a change event that we need. `name` and `table` point into the message.
struct ObjectKind;
struct EventView {
  const ObjectKind* kind = nullptr;
  bool added = false;
  uint8_t family = 0;
  std::string_view table;
  std::string_view name;
  std::optional<uint64_t> handle;
  uint32_t elements = 0;
};
// Returns false if the event concerns an object that we do not report.
bool DecodeEvent(const nlmsghdr* message, EventView* event);

}  // namespace nftp

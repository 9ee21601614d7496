#include "conntrack/requests.h"

#include <linux/netfilter/nfnetlink_conntrack.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace nftp {

namespace {

// Some systems that we build on have headers without these names.
constexpr uint16_t kCtaFilter = 25;  // Linux 5.8
constexpr uint16_t kCtaStatusMask = 26;
constexpr uint16_t kFilterOriginalFlags = 1;
constexpr uint16_t kFilterReplyFlags = 2;
// Flags of both, from net/netfilter/nf_internals.h. In host order, unlike everything else here.
constexpr uint32_t kFilterSource = 1 << 0;
constexpr uint32_t kFilterDestination = 1 << 1;
constexpr uint32_t kFilterProtocol = 1 << 3;
constexpr uint32_t kFilterSourcePort = 1 << 4;
constexpr uint32_t kFilterDestinationPort = 1 << 5;
constexpr uint32_t kWholeTuple =
    kFilterSource | kFilterDestination | kFilterProtocol | kFilterSourcePort | kFilterDestinationPort;

constexpr uint32_t kStatusConfirmed = 1 << 3;

// The largest message, one that creates an IPv6 entry with everything, has some 350 bytes.
constexpr size_t kLargestMessage = 512;

// One message at the end of a buffer. The destructor completes it.
class OpenMessage {
 public:
  OpenMessage(std::vector<uint8_t>* buffer, uint8_t type, uint16_t flags, uint8_t family, uint32_t seq)
      : buffer_(buffer), at_(Grow(buffer)), writer_(Begin(type, flags, family, seq), buffer->data() + buffer->size()) {}
  ~OpenMessage() { buffer_->resize(at_ + Align4(writer_.message()->nlmsg_len)); }
  OpenMessage(const OpenMessage&) = delete;
  OpenMessage& operator=(const OpenMessage&) = delete;

  AttrWriter* operator->() { return &writer_; }
  AttrWriter& operator*() { return writer_; }

 private:
  // Returns the offset at which the message begins.
  static size_t Grow(std::vector<uint8_t>* buffer) {
    const size_t at = buffer->size();
    buffer->resize(at + kLargestMessage);
    return at;
  }

  nlmsghdr* Begin(uint8_t type, uint16_t flags, uint8_t family, uint32_t seq) {
    nlmsghdr* message = mnl_nlmsg_put_header(buffer_->data() + at_);
    message->nlmsg_type = static_cast<uint16_t>(NFNL_SUBSYS_CTNETLINK << 8 | type);
    message->nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
    message->nlmsg_seq = seq;
    auto* generic = static_cast<nfgenmsg*>(mnl_nlmsg_put_extra_header(message, sizeof(nfgenmsg)));
    generic->nfgen_family = family;
    generic->version = NFNETLINK_V0;
    generic->res_id = 0;
    return message;
  }

  std::vector<uint8_t>* buffer_;
  size_t at_;
  AttrWriter writer_;
};

// Writes the parts of a tuple that `parts` names.
void PutTuple(AttrWriter& writer, uint16_t type, const ConntrackRecord& record, size_t direction, uint32_t parts) {
  const bool v4 = record.family == AF_INET;
  const size_t length = v4 ? 4 : 16;
  const auto* addresses = &record.addresses[direction * 2];
  const uint16_t* ports = record.ports[direction];
  nlattr* tuple = writer.Nest(type);
  if ((parts & (kFilterSource | kFilterDestination)) != 0) {
    nlattr* nest = writer.Nest(CTA_TUPLE_IP);
    if ((parts & kFilterSource) != 0) writer.Put(v4 ? CTA_IP_V4_SRC : CTA_IP_V6_SRC, addresses[0], length);
    if ((parts & kFilterDestination) != 0) writer.Put(v4 ? CTA_IP_V4_DST : CTA_IP_V6_DST, addresses[1], length);
    writer.EndNest(nest);
  }
  if ((parts & kFilterProtocol) != 0) {
    nlattr* nest = writer.Nest(CTA_TUPLE_PROTO);
    writer.U8(CTA_PROTO_NUM, record.protocol);
    if (record.kind == kKindIcmp) {
      const bool icmp4 = record.protocol == IPPROTO_ICMP;
      writer.U16(icmp4 ? CTA_PROTO_ICMP_ID : CTA_PROTO_ICMPV6_ID, ports[0]);
      writer.U8(icmp4 ? CTA_PROTO_ICMP_TYPE : CTA_PROTO_ICMPV6_TYPE, static_cast<uint8_t>(ports[1] >> 8));
      writer.U8(icmp4 ? CTA_PROTO_ICMP_CODE : CTA_PROTO_ICMPV6_CODE, static_cast<uint8_t>(ports[1]));
    } else if (record.kind == kKindPorts) {
      if ((parts & kFilterSourcePort) != 0) writer.U16(CTA_PROTO_SRC_PORT, ports[0]);
      if ((parts & kFilterDestinationPort) != 0) writer.U16(CTA_PROTO_DST_PORT, ports[1]);
    }
    writer.EndNest(nest);
  }
  if (parts == kWholeTuple && record.direction_zones[direction] != 0) {
    writer.U16(CTA_TUPLE_ZONE, record.direction_zones[direction]);
  }
  writer.EndNest(tuple);
}

// Writes the key of one entry. It always includes the tuple: IPCTNL_MSG_CT_DELETE without a tuple empties the table.
void PutKey(AttrWriter& writer, const ConntrackRecord& key) {
  PutTuple(writer, CTA_TUPLE_ORIG, key, kOriginal, kWholeTuple);
  if (key.zone != 0) writer.U16(CTA_ZONE, key.zone);
}

bool AllOnes(const uint8_t* bytes, size_t length) {
  return std::all_of(bytes, bytes + length, [](uint8_t byte) { return byte == 0xff; });
}

// Returns the parts of one direction that the kernel can filter by.
uint32_t TupleFilter(const ConntrackRecord& value, const ConntrackRecord& mask, size_t direction) {
  uint32_t parts = 0;
  // Not for IPv6: ctnetlink_filter_match_tuple inverts the result of ipv6_addr_cmp(), at least from Linux 5.8 to 6.18,
  // and skips exactly the requested entries.
  if (value.family == AF_INET) {
    if (AllOnes(mask.addresses[direction * 2], 4)) parts |= kFilterSource;
    if (AllOnes(mask.addresses[direction * 2 + 1], 4)) parts |= kFilterDestination;
  }
  if (mask.protocol != 0xff) return parts;
  parts |= kFilterProtocol;
  // The kernel compares ports only for these two protocols.
  if (value.protocol != IPPROTO_TCP && value.protocol != IPPROTO_UDP) return parts;
  if (mask.ports[direction][0] == 0xffff) parts |= kFilterSourcePort;
  if (mask.ports[direction][1] == 0xffff) parts |= kFilterDestinationPort;
  return parts;
}

void PutTupleFilters(AttrWriter& writer, const ConntrackRecord& value, const ConntrackRecord& mask) {
  ConntrackRecord filter = value;
  // Without ICMP's fields: the kernel requires either all fields of a protocol's tuple or only the requested ones.
  filter.kind = mask.ports[kOriginal][0] + mask.ports[kOriginal][1] + mask.ports[kReply][0] + mask.ports[kReply][1] != 0
                    ? kKindPorts
                    : kKindNone;
  const uint32_t original = TupleFilter(value, mask, kOriginal);
  // The protocol is the same in both directions.
  uint32_t reply = TupleFilter(value, mask, kReply);
  if (reply == kFilterProtocol) reply = 0;
  if (original == 0 && reply == 0) return;
  if (original != 0) PutTuple(writer, CTA_TUPLE_ORIG, filter, kOriginal, original);
  if (reply != 0) PutTuple(writer, CTA_TUPLE_REPLY, filter, kReply, reply);
  nlattr* flags = writer.Nest(kCtaFilter);
  if (original != 0) writer.Put(kFilterOriginalFlags, &original, sizeof original);
  if (reply != 0) writer.Put(kFilterReplyFlags, &reply, sizeof reply);
  writer.EndNest(flags);
}

// Writes the NAT that turns the inverted original tuple into the reply. The kernel derives the reply from it.
void PutNat(AttrWriter& writer, uint16_t type, const ConntrackRecord& entry, const uint8_t* address, uint16_t port) {
  const bool v4 = entry.family == AF_INET;
  nlattr* nat = writer.Nest(type);
  writer.Put(v4 ? CTA_NAT_V4_MINIP : CTA_NAT_V6_MINIP, address, v4 ? 4 : 16);
  if (entry.kind == kKindPorts) {
    nlattr* ports = writer.Nest(CTA_NAT_PROTO);
    writer.U16(CTA_PROTONAT_PORT_MIN, port);
    writer.EndNest(ports);
  }
  writer.EndNest(nat);
}

}  // namespace

void ConntrackRequests::GetTotals(uint32_t seq) {
  const OpenMessage message(&buffer_, IPCTNL_MSG_CT_GET_STATS, 0, AF_UNSPEC, seq);
}

void ConntrackRequests::GetCounts(uint32_t seq) {
  const OpenMessage message(&buffer_, IPCTNL_MSG_CT_GET_STATS_CPU, NLM_F_DUMP, AF_UNSPEC, seq);
}

void ConntrackRequests::Get(const ConntrackRecord& key, uint32_t seq) {
  OpenMessage message(&buffer_, IPCTNL_MSG_CT_GET, 0, key.family, seq);
  PutKey(*message, key);
}

void ConntrackRequests::Delete(const ConntrackRecord& key, uint16_t flags, uint32_t seq) {
  OpenMessage message(&buffer_, IPCTNL_MSG_CT_DELETE, flags, key.family, seq);
  PutKey(*message, key);
  message->U32(CTA_ID, key.id);
}

void ConntrackRequests::Change(const ConntrackRecord& key, const ConntrackChange& change, uint32_t seq) {
  OpenMessage message(&buffer_, IPCTNL_MSG_CT_NEW, NLM_F_ACK, key.family, seq);
  PutKey(*message, key);
  if (change.timeout) message->U32(CTA_TIMEOUT, *change.timeout);
  if (!change.mark) return;
  // The kernel computes (old & ~mask) ^ mark: it would flip a bit outside the mask.
  message->U32(CTA_MARK, *change.mark & change.mark_mask);
  message->U32(CTA_MARK_MASK, change.mark_mask);
}

void ConntrackRequests::Create(const ConntrackRecord& entry, uint32_t seq) {
  OpenMessage message(&buffer_, IPCTNL_MSG_CT_NEW, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, entry.family, seq);
  PutKey(*message, entry);
  const auto same = [&entry](size_t a, size_t b) {
    return std::memcmp(entry.addresses[a], entry.addresses[b], sizeof entry.addresses[a]) == 0;
  };
  const bool ports = entry.kind == kKindPorts;
  const bool source_nat = !same(3, 0) || (ports && entry.ports[kReply][1] != entry.ports[kOriginal][0]);
  const bool destination_nat = !same(2, 1) || (ports && entry.ports[kReply][0] != entry.ports[kOriginal][1]);
  ConntrackRecord inverted = entry;
  if (source_nat || destination_nat) {
    std::memcpy(inverted.addresses[2], entry.addresses[1], sizeof entry.addresses[1]);
    std::memcpy(inverted.addresses[3], entry.addresses[0], sizeof entry.addresses[0]);
    if (ports) {
      inverted.ports[kReply][0] = entry.ports[kOriginal][1];
      inverted.ports[kReply][1] = entry.ports[kOriginal][0];
    }
  }
  PutTuple(*message, CTA_TUPLE_REPLY, inverted, kReply, kWholeTuple);
  if (source_nat) PutNat(*message, CTA_NAT_SRC, entry, entry.addresses[3], entry.ports[kReply][1]);
  if (destination_nat) PutNat(*message, CTA_NAT_DST, entry, entry.addresses[2], entry.ports[kReply][0]);
  message->U32(CTA_TIMEOUT, entry.timeout);
  // The kernel has already confirmed the entry when it compares the status, and refuses to clear that bit.
  message->U32(CTA_STATUS, entry.status | kStatusConfirmed);
  if (entry.mark != 0) message->U32(CTA_MARK, entry.mark);
  if (entry.state != 0) {
    const bool tcp = entry.protocol == IPPROTO_TCP;
    nlattr* info = message->Nest(CTA_PROTOINFO);
    nlattr* own = message->Nest(tcp ? CTA_PROTOINFO_TCP : CTA_PROTOINFO_SCTP);
    message->U8(CTA_PROTOINFO_TCP_STATE, static_cast<uint8_t>(entry.state - 1));
    if (!tcp) {
      // SCTP accepts a state only together with both verification tags.
      message->U32(CTA_PROTOINFO_SCTP_VTAG_ORIGINAL, 0);
      message->U32(CTA_PROTOINFO_SCTP_VTAG_REPLY, 0);
    }
    message->EndNest(own);
    message->EndNest(info);
  }
  if ((entry.parts & kPartLabels) != 0) message->Put(CTA_LABELS, entry.labels, sizeof entry.labels);
}

void ConntrackRequests::Dump(const ConntrackPattern& pattern, bool plain, uint32_t seq) {
  const auto& [value, mask] = pattern;
  const uint8_t family = mask.family == 0xff ? value.family : static_cast<uint8_t>(AF_UNSPEC);
  OpenMessage message(&buffer_, IPCTNL_MSG_CT_GET, NLM_F_DUMP, family, seq);
  if (plain) return;
  if (mask.mark != 0) {
    message->U32(CTA_MARK, value.mark);
    message->U32(CTA_MARK_MASK, mask.mark);
  }
  if (mask.status != 0) {
    message->U32(CTA_STATUS, value.status);
    message->U32(kCtaStatusMask, mask.status);
  }
  if (mask.zone == 0xffff) message->U16(CTA_ZONE, value.zone);
  // The kernel compares only tuples of one family.
  if (family != AF_UNSPEC) PutTupleFilters(*message, value, mask);
}

}  // namespace nftp

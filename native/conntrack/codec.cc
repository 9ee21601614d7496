#include "conntrack/codec.h"

#include <linux/netfilter/nfnetlink_conntrack.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace nftp {

namespace {

constexpr uint16_t kStatsGlobalMax = 2;  // Linux 4.18

void DecodeAddress(const AttrView& attr, size_t length, uint8_t* into) {
  if (attr.length != length) ThrowMalformed("an address has another length");
  std::memcpy(into, attr.data, length);
}

void DecodeAddresses(const AttrView& nest, uint8_t family, uint8_t (*into)[16]) {
  int found = 0;
  for (AttrReader attrs(nest); attrs.Next();) {
    const AttrView& attr = attrs.attr();
    const bool v4 = attr.type() == CTA_IP_V4_SRC || attr.type() == CTA_IP_V4_DST;
    const bool v6 = attr.type() == CTA_IP_V6_SRC || attr.type() == CTA_IP_V6_DST;
    if (!v4 && !v6) continue;
    if (v4 != (family == AF_INET)) ThrowMalformed("an address has another family");
    const bool source = attr.type() == CTA_IP_V4_SRC || attr.type() == CTA_IP_V6_SRC;
    DecodeAddress(attr, v4 ? 4 : 16, into[source ? 0 : 1]);
    found |= source ? 1 : 2;
  }
  if (found != 3) ThrowMalformed("a tuple has no addresses");
}

void DecodeProtocol(const AttrView& nest, ConntrackRecord* record, size_t direction) {
  uint16_t* ports = record->ports[direction];
  bool found = false;
  for (AttrReader attrs(nest); attrs.Next();) {
    const AttrView& attr = attrs.attr();
    switch (attr.type()) {
      case CTA_PROTO_NUM:
        record->protocol = attr.U8();
        found = true;
        break;
      case CTA_PROTO_SRC_PORT:
        ports[0] = attr.U16();
        record->kind = kKindPorts;
        break;
      case CTA_PROTO_DST_PORT:
        ports[1] = attr.U16();
        record->kind = kKindPorts;
        break;
      case CTA_PROTO_ICMP_ID:
      case CTA_PROTO_ICMPV6_ID:
        ports[0] = attr.U16();
        record->kind = kKindIcmp;
        break;
      case CTA_PROTO_ICMP_TYPE:
      case CTA_PROTO_ICMPV6_TYPE:
        ports[1] = static_cast<uint16_t>((ports[1] & 0xff) | attr.U8() << 8);
        break;
      case CTA_PROTO_ICMP_CODE:
      case CTA_PROTO_ICMPV6_CODE:
        ports[1] = static_cast<uint16_t>((ports[1] & 0xff00) | attr.U8());
        break;
      default:
        break;
    }
  }
  if (!found) ThrowMalformed("a tuple has no protocol");
}

// A tuple in the form that the kernel writes for protocols with ports without a zone for one direction. Nearly
// all tuples have this form, and half of an entry's attributes are in its two tuples.
template <size_t kAddress>
struct PlainTuple {
  nlattr addresses;
  nlattr source;
  uint8_t source_address[kAddress];
  nlattr destination;
  uint8_t destination_address[kAddress];
  nlattr protocol;
  nlattr number;
  uint8_t protocol_number;
  uint8_t padding[3];
  nlattr source_port_header;
  uint16_t source_port[2];  // the second is padding
  nlattr destination_port_header;
  uint16_t destination_port[2];

  static bool Is(const nlattr& header, int type, size_t payload) {
    return header.nla_type == type && header.nla_len == sizeof header + payload;
  }
  bool Holds() const {
    constexpr bool kV4 = kAddress == 4;
    return Is(addresses, NLA_F_NESTED | CTA_TUPLE_IP, 2 * (sizeof(nlattr) + kAddress)) &&
           Is(source, kV4 ? CTA_IP_V4_SRC : CTA_IP_V6_SRC, kAddress) &&
           Is(destination, kV4 ? CTA_IP_V4_DST : CTA_IP_V6_DST, kAddress) &&
           Is(protocol, NLA_F_NESTED | CTA_TUPLE_PROTO, 3 * (sizeof(nlattr) + 4)) && Is(number, CTA_PROTO_NUM, 1) &&
           Is(source_port_header, CTA_PROTO_SRC_PORT, 2) && Is(destination_port_header, CTA_PROTO_DST_PORT, 2);
  }
};

// Returns false if the tuple has another form; then DecodeTuple must read it.
template <size_t kAddress>
bool DecodePlainTuple(const AttrView& nest, ConntrackRecord* record, size_t direction) {
  PlainTuple<kAddress> tuple;
  static_assert(sizeof tuple == 7 * sizeof(nlattr) + 2 * kAddress + 3 * 4);
  if (nest.length != sizeof tuple) return false;
  std::memcpy(&tuple, nest.data, sizeof tuple);
  if (!tuple.Holds()) return false;
  std::memcpy(record->addresses[2 * direction], tuple.source_address, kAddress);
  std::memcpy(record->addresses[2 * direction + 1], tuple.destination_address, kAddress);
  record->protocol = tuple.protocol_number;
  record->kind = kKindPorts;
  record->ports[direction][0] = __builtin_bswap16(tuple.source_port[0]);
  record->ports[direction][1] = __builtin_bswap16(tuple.destination_port[0]);
  return true;
}

void DecodeTuple(const AttrView& nest, ConntrackRecord* record, size_t direction) {
  const bool plain = record->family == AF_INET ? DecodePlainTuple<4>(nest, record, direction)
                                               : DecodePlainTuple<16>(nest, record, direction);
  if (plain) return;
  int found = 0;
  for (AttrReader attrs(nest); attrs.Next();) {
    const AttrView& attr = attrs.attr();
    switch (attr.type()) {
      case CTA_TUPLE_IP:
        DecodeAddresses(attr, record->family, &record->addresses[direction * 2]);
        found |= 1;
        break;
      case CTA_TUPLE_PROTO:
        DecodeProtocol(attr, record, direction);
        found |= 2;
        break;
      case CTA_TUPLE_ZONE:
        record->direction_zones[direction] = attr.U16();
        break;
      default:
        break;
    }
  }
  if (found != 3) ThrowMalformed("a tuple has no addresses or no protocol");
}

void DecodeState(const AttrView& nest, ConntrackRecord* record) {
  static_assert(CTA_PROTOINFO_TCP_STATE == 1 && CTA_PROTOINFO_DCCP_STATE == 1 && CTA_PROTOINFO_SCTP_STATE == 1);
  for (AttrReader attrs(nest); attrs.Next();) {
    for (AttrReader inner(attrs.attr()); inner.Next();) {
      if (inner.attr().type() != CTA_PROTOINFO_TCP_STATE) continue;
      // No protocol has more than 254 states.
      record->state = static_cast<uint8_t>(std::min<int>(inner.attr().U8(), UINT8_MAX - 1) + 1);
    }
  }
}

void DecodeCounters(const AttrView& nest, ConntrackRecord* record, size_t direction) {
  for (AttrReader attrs(nest); attrs.Next();) {
    const AttrView& attr = attrs.attr();
    uint64_t* counters = &record->counters[direction * 2];
    if (attr.type() == CTA_COUNTERS_PACKETS) counters[0] = attr.U64();
    if (attr.type() == CTA_COUNTERS_BYTES) counters[1] = attr.U64();
  }
  record->parts |= kPartCounters;
}

void DecodeTimestamp(const AttrView& nest, ConntrackRecord* record) {
  for (AttrReader attrs(nest); attrs.Next();) {
    if (attrs.attr().type() != CTA_TIMESTAMP_START) continue;
    record->start = attrs.attr().U64();
    record->parts |= kPartStart;
  }
}

void DecodeLabels(const AttrView& attr, ConntrackRecord* record) {
  if (attr.length > sizeof record->labels) ThrowMalformed("the labels exceed 16 bytes");
  std::memcpy(record->labels, attr.data, attr.length);
  record->parts |= kPartLabels;
}

}  // namespace

bool DecodeConntrack(const nlmsghdr* message, ConntrackRecord* record) {
  AttrReader attrs(message);
  std::memset(record, 0, sizeof *record);
  record->family = static_cast<const nfgenmsg*>(NLMSG_DATA(message))->nfgen_family;
  if (record->family != AF_INET && record->family != AF_INET6) return false;
  int tuples = 0;
  while (attrs.Next()) {
    const AttrView& attr = attrs.attr();
    switch (attr.type()) {
      case CTA_TUPLE_ORIG:
        DecodeTuple(attr, record, kOriginal);
        tuples |= 1;
        break;
      case CTA_TUPLE_REPLY:
        DecodeTuple(attr, record, kReply);
        tuples |= 2;
        break;
      case CTA_STATUS:
        record->status = attr.U32();
        break;
      case CTA_PROTOINFO:
        DecodeState(attr, record);
        break;
      case CTA_TIMEOUT:
        record->timeout = attr.U32();
        record->parts |= kPartTimeout;
        break;
      case CTA_MARK:
        record->mark = attr.U32();
        break;
      case CTA_COUNTERS_ORIG:
        DecodeCounters(attr, record, kOriginal);
        break;
      case CTA_COUNTERS_REPLY:
        DecodeCounters(attr, record, kReply);
        break;
      case CTA_ID:
        record->id = attr.U32();
        break;
      case CTA_ZONE:
        record->zone = attr.U16();
        break;
      case CTA_TIMESTAMP:
        DecodeTimestamp(attr, record);
        break;
      case CTA_LABELS:
        DecodeLabels(attr, record);
        break;
      default:
        break;
    }
  }
  if (tuples != 3) ThrowMalformed("an entry lacks a tuple");
  return true;
}

ConntrackTotals DecodeConntrackTotals(const nlmsghdr* message) {
  const Attributes attrs{AttrReader(message)};
  ConntrackTotals totals;
  if (!attrs[CTA_STATS_GLOBAL_ENTRIES]) ThrowMalformed("the statistics lack the number of entries");
  attrs[CTA_STATS_GLOBAL_ENTRIES].To(&totals.entries);
  attrs[kStatsGlobalMax].To(&totals.max);
  return totals;
}

void AddConntrackCounts(const nlmsghdr* message, ConntrackCounts* counts) {
  const Attributes attrs{AttrReader(message)};
  const auto add = [&attrs](uint16_t type, uint64_t* count) { *count += attrs[type] ? attrs[type].U32() : 0; };
  add(CTA_STATS_FOUND, &counts->found);
  add(CTA_STATS_INVALID, &counts->invalid);
  add(CTA_STATS_INSERT, &counts->insert);
  add(CTA_STATS_INSERT_FAILED, &counts->insert_failed);
  add(CTA_STATS_DROP, &counts->drop);
  add(CTA_STATS_EARLY_DROP, &counts->early_drop);
  add(CTA_STATS_ERROR, &counts->error);
}

}  // namespace nftp

#include "codec/expr_table.h"

#include <arpa/inet.h>
#include <linux/netfilter/nf_tables.h>

#include <iterator>

namespace nftp {

namespace {

using K = AttrKind;
constexpr bool kRequired = true;

// Attributes of Linux 6.2 and 6.13. Debian 12's linux/netfilter/nf_tables.h lacks them.
constexpr uint16_t kInnerNum = 1;
constexpr uint16_t kInnerType = 2;
constexpr uint16_t kInnerFlags = 3;
constexpr uint16_t kInnerHdrsize = 4;
constexpr uint16_t kInnerExpr = 5;
constexpr uint16_t kBitwiseSreg2 = 8;

constexpr AttrDesc kPayload[] = {
    {"dreg", NFTA_PAYLOAD_DREG, K::U32},
    {"base", NFTA_PAYLOAD_BASE, K::U32, kRequired},
    {"offset", NFTA_PAYLOAD_OFFSET, K::U32, kRequired},
    {"len", NFTA_PAYLOAD_LEN, K::U32, kRequired},
    {"sreg", NFTA_PAYLOAD_SREG, K::U32},
    {"csumType", NFTA_PAYLOAD_CSUM_TYPE, K::U32},
    {"csumOffset", NFTA_PAYLOAD_CSUM_OFFSET, K::U32},
    {"csumFlags", NFTA_PAYLOAD_CSUM_FLAGS, K::U32},
};
constexpr AttrDesc kMeta[] = {
    {"dreg", NFTA_META_DREG, K::U32},
    {"key", NFTA_META_KEY, K::U32, kRequired},
    {"sreg", NFTA_META_SREG, K::U32},
};
constexpr AttrDesc kCt[] = {
    {"dreg", NFTA_CT_DREG, K::U32},
    {"key", NFTA_CT_KEY, K::U32, kRequired},
    {"direction", NFTA_CT_DIRECTION, K::U8},
    {"sreg", NFTA_CT_SREG, K::U32},
};
constexpr AttrDesc kCmp[] = {
    {"sreg", NFTA_CMP_SREG, K::U32, kRequired},
    {"op", NFTA_CMP_OP, K::U32, kRequired},
    {"data", NFTA_CMP_DATA, K::Value, kRequired},
};
constexpr AttrDesc kRange[] = {
    {"sreg", NFTA_RANGE_SREG, K::U32, kRequired},
    {"op", NFTA_RANGE_OP, K::U32, kRequired},
    {"from", NFTA_RANGE_FROM_DATA, K::Value, kRequired},
    {"to", NFTA_RANGE_TO_DATA, K::Value, kRequired},
};
constexpr AttrDesc kBitwise[] = {
    {"sreg", NFTA_BITWISE_SREG, K::U32, kRequired},
    {"dreg", NFTA_BITWISE_DREG, K::U32, kRequired},
    {"len", NFTA_BITWISE_LEN, K::U32, kRequired},
    {"mask", NFTA_BITWISE_MASK, K::Value},
    {"xor", NFTA_BITWISE_XOR, K::Value},
    {"op", NFTA_BITWISE_OP, K::U32},
    {"data", NFTA_BITWISE_DATA, K::Value},
    {"sreg2", kBitwiseSreg2, K::U32},
};
constexpr AttrDesc kByteorder[] = {
    {"sreg", NFTA_BYTEORDER_SREG, K::U32, kRequired}, {"dreg", NFTA_BYTEORDER_DREG, K::U32, kRequired},
    {"op", NFTA_BYTEORDER_OP, K::U32, kRequired},     {"len", NFTA_BYTEORDER_LEN, K::U32, kRequired},
    {"size", NFTA_BYTEORDER_SIZE, K::U32, kRequired},
};
constexpr AttrDesc kLookup[] = {
    {"set", NFTA_LOOKUP_SET, K::String, kRequired},
    {"sreg", NFTA_LOOKUP_SREG, K::U32, kRequired},
    {"dreg", NFTA_LOOKUP_DREG, K::U32},
    {"setId", NFTA_LOOKUP_SET_ID, K::U32},
    {"flags", NFTA_LOOKUP_FLAGS, K::U32},
};
constexpr AttrDesc kImmediate[] = {
    {"dreg", NFTA_IMMEDIATE_DREG, K::U32, kRequired},
    {"data", NFTA_IMMEDIATE_DATA, K::Data, kRequired},
};
constexpr AttrDesc kCounter[] = {
    {"bytes", NFTA_COUNTER_BYTES, K::U64},
    {"packets", NFTA_COUNTER_PACKETS, K::U64},
    {"", NFTA_COUNTER_PAD, K::Padding},
};
constexpr AttrDesc kLimit[] = {
    {"rate", NFTA_LIMIT_RATE, K::U64, kRequired}, {"unit", NFTA_LIMIT_UNIT, K::U64, kRequired},
    {"burst", NFTA_LIMIT_BURST, K::U32},          {"limitType", NFTA_LIMIT_TYPE, K::U32},
    {"flags", NFTA_LIMIT_FLAGS, K::U32},          {"", NFTA_LIMIT_PAD, K::Padding},
};
constexpr AttrDesc kLog[] = {
    {"group", NFTA_LOG_GROUP, K::U16},     {"prefix", NFTA_LOG_PREFIX, K::String},
    {"snaplen", NFTA_LOG_SNAPLEN, K::U32}, {"qthreshold", NFTA_LOG_QTHRESHOLD, K::U16},
    {"level", NFTA_LOG_LEVEL, K::U32},     {"flags", NFTA_LOG_FLAGS, K::U32},
};
constexpr AttrDesc kNat[] = {
    {"natType", NFTA_NAT_TYPE, K::U32, kRequired},
    {"family", NFTA_NAT_FAMILY, K::U32, kRequired},
    {"regAddrMin", NFTA_NAT_REG_ADDR_MIN, K::U32},
    {"regAddrMax", NFTA_NAT_REG_ADDR_MAX, K::U32},
    {"regProtoMin", NFTA_NAT_REG_PROTO_MIN, K::U32},
    {"regProtoMax", NFTA_NAT_REG_PROTO_MAX, K::U32},
    {"flags", NFTA_NAT_FLAGS, K::U32},
};
constexpr AttrDesc kMasq[] = {
    {"flags", NFTA_MASQ_FLAGS, K::U32},
    {"regProtoMin", NFTA_MASQ_REG_PROTO_MIN, K::U32},
    {"regProtoMax", NFTA_MASQ_REG_PROTO_MAX, K::U32},
};
constexpr AttrDesc kRedir[] = {
    {"regProtoMin", NFTA_REDIR_REG_PROTO_MIN, K::U32},
    {"regProtoMax", NFTA_REDIR_REG_PROTO_MAX, K::U32},
    {"flags", NFTA_REDIR_FLAGS, K::U32},
};
constexpr AttrDesc kReject[] = {
    {"rejectType", NFTA_REJECT_TYPE, K::U32, kRequired},
    {"code", NFTA_REJECT_ICMP_CODE, K::U8},
};
constexpr AttrDesc kFib[] = {
    {"dreg", NFTA_FIB_DREG, K::U32, kRequired},
    {"result", NFTA_FIB_RESULT, K::U32, kRequired},
    {"flags", NFTA_FIB_FLAGS, K::U32, kRequired},
};
constexpr AttrDesc kNumgen[] = {
    {"dreg", NFTA_NG_DREG, K::U32, kRequired},
    {"modulus", NFTA_NG_MODULUS, K::U32, kRequired},
    {"ngType", NFTA_NG_TYPE, K::U32, kRequired},
    {"offset", NFTA_NG_OFFSET, K::U32},
};
constexpr AttrDesc kHash[] = {
    {"sreg", NFTA_HASH_SREG, K::U32},     {"dreg", NFTA_HASH_DREG, K::U32, kRequired},
    {"len", NFTA_HASH_LEN, K::U32},       {"modulus", NFTA_HASH_MODULUS, K::U32, kRequired},
    {"seed", NFTA_HASH_SEED, K::U32},     {"offset", NFTA_HASH_OFFSET, K::U32},
    {"hashType", NFTA_HASH_TYPE, K::U32},
};
constexpr AttrDesc kDynset[] = {
    {"set", NFTA_DYNSET_SET_NAME, K::String, kRequired},
    {"setId", NFTA_DYNSET_SET_ID, K::U32},
    {"op", NFTA_DYNSET_OP, K::U32, kRequired},
    {"sregKey", NFTA_DYNSET_SREG_KEY, K::U32, kRequired},
    {"sregData", NFTA_DYNSET_SREG_DATA, K::U32},
    {"timeout", NFTA_DYNSET_TIMEOUT, K::U64},
    {"exprs", NFTA_DYNSET_EXPR, K::Exprs, false, NFTA_DYNSET_EXPRESSIONS},
    {"", NFTA_DYNSET_PAD, K::Padding},
    {"flags", NFTA_DYNSET_FLAGS, K::U32},
};
constexpr AttrDesc kQuota[] = {
    {"bytes", NFTA_QUOTA_BYTES, K::U64, kRequired},
    {"flags", NFTA_QUOTA_FLAGS, K::U32},
    {"", NFTA_QUOTA_PAD, K::Padding},
    {"consumed", NFTA_QUOTA_CONSUMED, K::U64},
};
constexpr AttrDesc kConnlimit[] = {
    {"count", NFTA_CONNLIMIT_COUNT, K::U32, kRequired},
    {"flags", NFTA_CONNLIMIT_FLAGS, K::U32},
};
constexpr AttrDesc kObjref[] = {
    {"immType", NFTA_OBJREF_IMM_TYPE, K::U32}, {"immName", NFTA_OBJREF_IMM_NAME, K::String},
    {"setSreg", NFTA_OBJREF_SET_SREG, K::U32}, {"setName", NFTA_OBJREF_SET_NAME, K::String},
    {"setId", NFTA_OBJREF_SET_ID, K::U32},
};
constexpr AttrDesc kExthdr[] = {
    {"dreg", NFTA_EXTHDR_DREG, K::U32},     {"hdrType", NFTA_EXTHDR_TYPE, K::U8, kRequired},
    {"offset", NFTA_EXTHDR_OFFSET, K::U32}, {"len", NFTA_EXTHDR_LEN, K::U32},
    {"flags", NFTA_EXTHDR_FLAGS, K::U32},   {"op", NFTA_EXTHDR_OP, K::U32},
    {"sreg", NFTA_EXTHDR_SREG, K::U32},
};
constexpr AttrDesc kRt[] = {
    {"dreg", NFTA_RT_DREG, K::U32, kRequired},
    {"key", NFTA_RT_KEY, K::U32, kRequired},
};
constexpr AttrDesc kSocket[] = {
    {"key", NFTA_SOCKET_KEY, K::U32, kRequired},
    {"dreg", NFTA_SOCKET_DREG, K::U32, kRequired},
    {"level", NFTA_SOCKET_LEVEL, K::U32},
};
constexpr AttrDesc kTproxy[] = {
    {"family", NFTA_TPROXY_FAMILY, K::U32, kRequired},
    {"regAddr", NFTA_TPROXY_REG_ADDR, K::U32},
    {"regPort", NFTA_TPROXY_REG_PORT, K::U32},
};
constexpr AttrDesc kQueue[] = {
    {"num", NFTA_QUEUE_NUM, K::U16},
    {"total", NFTA_QUEUE_TOTAL, K::U16},
    {"flags", NFTA_QUEUE_FLAGS, K::U16},
    {"sregQnum", NFTA_QUEUE_SREG_QNUM, K::U32},
};
constexpr AttrDesc kLast[] = {
    {"set", NFTA_LAST_SET, K::U32},
    {"msecs", NFTA_LAST_MSECS, K::U64},
    {"", NFTA_LAST_PAD, K::Padding},
};
constexpr AttrDesc kFlowOffload[] = {
    {"flowtable", NFTA_FLOW_TABLE_NAME, K::String, kRequired},
};
constexpr AttrDesc kDup[] = {
    {"sregAddr", NFTA_DUP_SREG_ADDR, K::U32},
    {"sregDev", NFTA_DUP_SREG_DEV, K::U32},
};
constexpr AttrDesc kFwd[] = {
    {"sregDev", NFTA_FWD_SREG_DEV, K::U32, kRequired},
    {"sregAddr", NFTA_FWD_SREG_ADDR, K::U32},
    {"nfproto", NFTA_FWD_NFPROTO, K::U32},
};
constexpr AttrDesc kSynproxy[] = {
    {"mss", NFTA_SYNPROXY_MSS, K::U16},
    {"wscale", NFTA_SYNPROXY_WSCALE, K::U8},
    {"flags", NFTA_SYNPROXY_FLAGS, K::U32},
};
constexpr AttrDesc kOsf[] = {
    {"dreg", NFTA_OSF_DREG, K::U32, kRequired},
    {"ttl", NFTA_OSF_TTL, K::U8},
    {"flags", NFTA_OSF_FLAGS, K::U32},
};
constexpr AttrDesc kXfrm[] = {
    {"dreg", NFTA_XFRM_DREG, K::U32, kRequired},
    {"key", NFTA_XFRM_KEY, K::U32, kRequired},
    {"dir", NFTA_XFRM_DIR, K::U8, kRequired},
    {"spnum", NFTA_XFRM_SPNUM, K::U32},
};
constexpr AttrDesc kTunnel[] = {
    {"key", NFTA_TUNNEL_KEY, K::U32, kRequired},
    {"dreg", NFTA_TUNNEL_DREG, K::U32, kRequired},
    {"mode", NFTA_TUNNEL_MODE, K::U32},
};
constexpr AttrDesc kInner[] = {
    {"num", kInnerNum, K::U32, kRequired},      {"innerType", kInnerType, K::U32, kRequired},
    {"flags", kInnerFlags, K::U32, kRequired},  {"hdrsize", kInnerHdrsize, K::U32, kRequired},
    {"exprs", kInnerExpr, K::Exprs, kRequired},
};

constexpr AttrDesc kCtHelper[] = {
    {"name", NFTA_CT_HELPER_NAME, K::String, kRequired},
    {"l3proto", NFTA_CT_HELPER_L3PROTO, K::U16},
    {"l4proto", NFTA_CT_HELPER_L4PROTO, K::U8, kRequired},
};
constexpr AttrDesc kCtTimeout[] = {
    {"l3proto", NFTA_CT_TIMEOUT_L3PROTO, K::U16},
    {"l4proto", NFTA_CT_TIMEOUT_L4PROTO, K::U8, kRequired},
    {"timeouts", NFTA_CT_TIMEOUT_DATA, K::Numbers, kRequired},
};
constexpr AttrDesc kCtExpect[] = {
    {"l3proto", NFTA_CT_EXPECT_L3PROTO, K::U16},        {"l4proto", NFTA_CT_EXPECT_L4PROTO, K::U8, kRequired},
    {"dport", NFTA_CT_EXPECT_DPORT, K::U16, kRequired}, {"timeout", NFTA_CT_EXPECT_TIMEOUT, K::U32Host, kRequired},
    {"size", NFTA_CT_EXPECT_SIZE, K::U8, kRequired},
};
constexpr AttrDesc kSecmark[] = {
    {"context", NFTA_SECMARK_CTX, K::String, kRequired},
};

template <uint32_t N>
constexpr ExprDesc Desc(const char* name, const AttrDesc (&attrs)[N]) {
  return ExprDesc{name, attrs, N};
}

constexpr ExprDesc kExprs[] = {
    Desc("payload", kPayload),
    Desc("meta", kMeta),
    Desc("ct", kCt),
    Desc("cmp", kCmp),
    Desc("range", kRange),
    Desc("bitwise", kBitwise),
    Desc("byteorder", kByteorder),
    Desc("lookup", kLookup),
    Desc("immediate", kImmediate),
    Desc("counter", kCounter),
    Desc("limit", kLimit),
    Desc("log", kLog),
    Desc("nat", kNat),
    Desc("masq", kMasq),
    Desc("redir", kRedir),
    Desc("reject", kReject),
    ExprDesc{"notrack", nullptr, 0},
    Desc("fib", kFib),
    Desc("numgen", kNumgen),
    Desc("hash", kHash),
    Desc("dynset", kDynset),
    Desc("quota", kQuota),
    Desc("connlimit", kConnlimit),
    Desc("objref", kObjref),
    Desc("exthdr", kExthdr),
    Desc("rt", kRt),
    Desc("socket", kSocket),
    Desc("tproxy", kTproxy),
    Desc("queue", kQueue),
    Desc("last", kLast),
    Desc("flow_offload", kFlowOffload),
    Desc("dup", kDup),
    Desc("fwd", kFwd),
    Desc("synproxy", kSynproxy),
    Desc("osf", kOsf),
    Desc("xfrm", kXfrm),
    Desc("tunnel", kTunnel),
    Desc("inner", kInner),
};

// A counter, quota, limit, connlimit or synproxy has the attributes of its expression.
constexpr struct {
  uint32_t type;
  ExprDesc data;
} kObjects[] = {
    {NFT_OBJECT_COUNTER, Desc("counter", kCounter)},       {NFT_OBJECT_QUOTA, Desc("quota", kQuota)},
    {NFT_OBJECT_CT_HELPER, Desc("ct helper", kCtHelper)},  {NFT_OBJECT_LIMIT, Desc("limit", kLimit)},
    {NFT_OBJECT_CONNLIMIT, Desc("connlimit", kConnlimit)}, {NFT_OBJECT_CT_TIMEOUT, Desc("ct timeout", kCtTimeout)},
    {NFT_OBJECT_SECMARK, Desc("secmark", kSecmark)},       {NFT_OBJECT_CT_EXPECT, Desc("ct expectation", kCtExpect)},
    {NFT_OBJECT_SYNPROXY, Desc("synproxy", kSynproxy)},
};

}  // namespace

const ExprDesc* FindExpr(std::string_view name) {
  for (const ExprDesc& desc : kExprs) {
    if (name == desc.name) return &desc;
  }
  return nullptr;
}

const ExprDesc* FindObject(uint32_t type) {
  for (const auto& object : kObjects) {
    if (type == object.type) return &object.data;
  }
  return nullptr;
}

}  // namespace nftp

#include "codec/message_decoder.h"

#include <linux/netfilter/nf_tables.h>

#include "codec/expr_codec.h"
#include "codec/names.h"

namespace nftp {

namespace {

BaseChain DecodeHook(const AttrView& nest) {
  const Attributes attrs{AttrReader(nest)};
  BaseChain base;
  attrs[NFTA_HOOK_HOOKNUM].To(&base.hook);
  if (const AttrView& priority = attrs[NFTA_HOOK_PRIORITY]) base.priority = static_cast<int32_t>(priority.U32());
  for (AttrReader devices(attrs[NFTA_HOOK_DEVS]); devices.Next();) base.devices.emplace_back(devices.attr().Text());
  // The kernel dumps a single device in NFTA_HOOK_DEVS as well.
  if (const AttrView& device = attrs[NFTA_HOOK_DEV]; device && base.devices.empty()) {
    base.devices.emplace_back(device.Text());
  }
  return base;
}

void DecodeSetDesc(const AttrView& nest, SetInfo* set) {
  const Attributes attrs{AttrReader(nest)};
  if (const AttrView& size = attrs[NFTA_SET_DESC_SIZE]) set->size = size.U32();
  for (AttrReader fields(attrs[NFTA_SET_DESC_CONCAT]); fields.Next();) {
    if (const AttrView length = Attributes(AttrReader(fields.attr()))[NFTA_SET_FIELD_LEN]) {
      set->field_lens.push_back(static_cast<uint8_t>(length.U32()));
    }
  }
}

// NFTA_SET_COUNT: number of elements, in dumps since Linux 6.16. Debian 12's linux/netfilter/nf_tables.h lacks it.
constexpr uint16_t kSetCount = 20;

const nfgenmsg* HeaderOf(const nlmsghdr* message) {
  if (message->nlmsg_len < NLMSG_LENGTH(sizeof(nfgenmsg))) throw Malformed("the message is shorter than its header");
  return static_cast<const nfgenmsg*>(NLMSG_DATA(message));
}

}  // namespace

uint8_t FamilyOf(const nlmsghdr* message) { return HeaderOf(message)->nfgen_family; }

uint16_t ResourceOf(const nlmsghdr* message) { return HeaderOf(message)->res_id; }

TableInfo DecodeTable(const nlmsghdr* message) {
  const Attributes attrs{AttrReader(message)};
  TableInfo info;
  info.ref.family = FamilyOf(message);
  attrs[NFTA_TABLE_NAME].To(&info.ref.table);
  attrs[NFTA_TABLE_FLAGS].To(&info.flags);
  attrs[NFTA_TABLE_USE].To(&info.use);
  attrs[NFTA_TABLE_HANDLE].To(&info.handle);
  attrs[NFTA_TABLE_USERDATA].To(&info.userdata);
  attrs[NFTA_TABLE_OWNER].To(&info.owner);
  return info;
}

std::string_view TableOfChain(const nlmsghdr* message) {
  for (AttrReader reader(message); reader.Next();) {
    if (reader.attr().type() == NFTA_CHAIN_TABLE) return reader.attr().Text();
  }
  return {};
}

ChainInfo DecodeChain(const nlmsghdr* message) {
  const Attributes attrs{AttrReader(message)};
  ChainInfo info;
  info.ref.family = FamilyOf(message);
  attrs[NFTA_CHAIN_TABLE].To(&info.ref.table);
  attrs[NFTA_CHAIN_NAME].To(&info.chain);
  attrs[NFTA_CHAIN_HANDLE].To(&info.handle);
  attrs[NFTA_CHAIN_USE].To(&info.use);
  attrs[NFTA_CHAIN_FLAGS].To(&info.flags);
  attrs[NFTA_CHAIN_USERDATA].To(&info.userdata);
  if (const AttrView& hook = attrs[NFTA_CHAIN_HOOK]) {
    info.base = DecodeHook(hook);
    attrs[NFTA_CHAIN_POLICY].To(&info.base->policy);
    attrs[NFTA_CHAIN_TYPE].To(&info.base->type);
  }
  return info;
}

RuleInfo DecodeRule(const nlmsghdr* message) {
  const Attributes attrs{AttrReader(message)};
  RuleInfo info;
  info.ref.family = FamilyOf(message);
  attrs[NFTA_RULE_TABLE].To(&info.ref.table);
  attrs[NFTA_RULE_CHAIN].To(&info.chain);
  attrs[NFTA_RULE_HANDLE].To(&info.handle);
  attrs[NFTA_RULE_POSITION].To(&info.position);
  info.exprs = DecodeExprList(attrs[NFTA_RULE_EXPRESSIONS]);
  attrs[NFTA_RULE_USERDATA].To(&info.userdata);
  return info;
}

SetDump DecodeSet(const nlmsghdr* message) {
  const Attributes attrs{AttrReader(message)};
  SetDump dump;
  SetInfo& set = dump.info;
  dump.ref.family = FamilyOf(message);
  attrs[NFTA_SET_TABLE].To(&dump.ref.table);
  attrs[NFTA_SET_NAME].To(&set.set);
  attrs[NFTA_SET_HANDLE].To(&dump.handle);
  attrs[kSetCount].To(&dump.count);
  attrs[NFTA_SET_ID].To(&dump.id);
  attrs[NFTA_SET_FLAGS].To(&set.flags);
  attrs[NFTA_SET_KEY_TYPE].To(&set.key_type);
  attrs[NFTA_SET_KEY_LEN].To(&set.key_len);
  attrs[NFTA_SET_DATA_TYPE].To(&set.data_type);
  // The kernel reports the size of its own verdict struct.
  if (set.data_type != static_cast<uint32_t>(NFT_DATA_VERDICT)) attrs[NFTA_SET_DATA_LEN].To(&set.data_len);
  attrs[NFTA_SET_OBJ_TYPE].To(&set.obj_type);
  attrs[NFTA_SET_POLICY].To(&set.policy);
  DecodeSetDesc(attrs[NFTA_SET_DESC], &set);
  attrs[NFTA_SET_TIMEOUT].To(&set.timeout);
  attrs[NFTA_SET_GC_INTERVAL].To(&set.gc_interval);
  attrs[NFTA_SET_USERDATA].To(&set.userdata);
  set.exprs = DecodeExprList(attrs[NFTA_SET_EXPRESSIONS]);
  if (const AttrView& expr = attrs[NFTA_SET_EXPR]) set.exprs.push_back(DecodeExpr(expr));
  return dump;
}

ObjectInfo DecodeObject(const nlmsghdr* message) {
  const Attributes attrs{AttrReader(message)};
  ObjectInfo info;
  info.ref.family = FamilyOf(message);
  attrs[NFTA_OBJ_TABLE].To(&info.ref.table);
  attrs[NFTA_OBJ_NAME].To(&info.object);
  attrs[NFTA_OBJ_TYPE].To(&info.type);
  attrs[NFTA_OBJ_HANDLE].To(&info.handle);
  attrs[NFTA_OBJ_USE].To(&info.use);
  attrs[NFTA_OBJ_USERDATA].To(&info.userdata);
  info.data = DecodeObjectData(info.type, attrs[NFTA_OBJ_DATA]);
  return info;
}

GenInfo DecodeGen(const nlmsghdr* message) {
  const Attributes attrs{AttrReader(message)};
  GenInfo info;
  attrs[NFTA_GEN_ID].To(&info.id);
  attrs[NFTA_GEN_PROC_PID].To(&info.pid);
  attrs[NFTA_GEN_PROC_NAME].To(&info.name);
  return info;
}

ErrorReply DecodeError(const nlmsghdr* message) {
  if (message->nlmsg_len < NLMSG_LENGTH(sizeof(nlmsgerr))) throw Malformed("an error message is too short");
  nlmsgerr body;
  std::memcpy(&body, NLMSG_DATA(message), sizeof body);
  ErrorReply reply;
  // The kernel's error numbers are negative, and INT_MIN has no positive counterpart.
  reply.error = body.error == INT32_MIN ? INT32_MAX : (body.error < 0 ? -body.error : body.error);
  reply.seq = body.msg.nlmsg_seq;
  if ((message->nlmsg_flags & NLM_F_ACK_TLVS) == 0) return reply;
  size_t skip = sizeof(nlmsgerr);
  // Without NETLINK_CAP_ACK, the whole request comes first.
  if ((message->nlmsg_flags & NLM_F_CAPPED) == 0 && body.msg.nlmsg_len > sizeof(nlmsghdr)) {
    skip += body.msg.nlmsg_len - sizeof(nlmsghdr);
  }
  const Attributes attrs{AttrReader(message, skip)};
  attrs[NLMSGERR_ATTR_MSG].To(&reply.text);
  // In host order.
  const AttrView& offset = attrs[NLMSGERR_ATTR_OFFS];
  if (offset.length == sizeof(uint32_t)) reply.offset = Load32(offset.data);
  return reply;
}

bool DecodeEvent(const nlmsghdr* message, EventView* event) {
  const uint8_t operation = NFNL_MSG_TYPE(message->nlmsg_type);
  const ObjectKind* const kind = FindKind(operation);
  if (kind == nullptr) return false;
  const Attributes attrs{AttrReader(message)};
  event->kind = kind;
  event->added = operation == kind->add;
  event->family = FamilyOf(message);
  event->table = attrs[kind->table].Text();
  if (kind->object != 0) event->name = attrs[kind->object].Text();
  if (kind->handle != 0) attrs[kind->handle].To(&event->handle);
  if (kind->name != "elements") return true;
  for (AttrReader list(attrs[NFTA_SET_ELEM_LIST_ELEMENTS]); list.Next();) ++event->elements;
  return true;
}

}  // namespace nftp

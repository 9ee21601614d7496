#include "codec/message_decoder.h"

#include <linux/netfilter/nf_tables.h>

#include "codec/expr_codec.h"
#include "codec/expr_table.h"

namespace nftp {

namespace {

BaseChain DecodeHook(const AttrView& nest) {
  BaseChain base;
  for (AttrReader reader(nest); reader.Next();) {
    const AttrView& attr = reader.attr();
    switch (attr.type()) {
      case NFTA_HOOK_HOOKNUM:
        base.hook = attr.U32();
        break;
      case NFTA_HOOK_PRIORITY:
        base.priority = static_cast<int32_t>(attr.U32());
        break;
      case NFTA_HOOK_DEV:
        // The kernel dumps a single device in NFTA_HOOK_DEVS as well.
        if (base.devices.empty()) base.devices.emplace_back(attr.Text());
        break;
      case NFTA_HOOK_DEVS:
        base.devices.clear();
        for (AttrReader devices(attr); devices.Next();) base.devices.emplace_back(devices.attr().Text());
        break;
      default:
        break;
    }
  }
  return base;
}

void DecodeSetDesc(const AttrView& nest, SetInfo* set) {
  for (AttrReader reader(nest); reader.Next();) {
    const AttrView& attr = reader.attr();
    if (attr.type() == NFTA_SET_DESC_SIZE) set->size = attr.U32();
    if (attr.type() != NFTA_SET_DESC_CONCAT) continue;
    for (AttrReader fields(attr); fields.Next();) {
      for (AttrReader field(fields.attr()); field.Next();) {
        if (field.attr().type() == NFTA_SET_FIELD_LEN) {
          set->field_lens.push_back(static_cast<uint8_t>(field.attr().U32()));
        }
      }
    }
  }
}

// NFTA_SET_COUNT: number of elements, in dumps since Linux 6.16. Debian 12's linux/netfilter/nf_tables.h lacks it.
constexpr uint16_t kSetCount = 20;

void DecodeSetAttr(const AttrView& attr, SetDump* dump) {
  SetInfo& set = dump->info;
  switch (attr.type()) {
    case NFTA_SET_TABLE:
      dump->ref.table = std::string(attr.Text());
      break;
    case NFTA_SET_NAME:
      set.set = std::string(attr.Text());
      break;
    case NFTA_SET_HANDLE:
      dump->handle = attr.U64();
      break;
    case kSetCount:
      dump->count = attr.U32();
      break;
    case NFTA_SET_ID:
      dump->id = attr.U32();
      break;
    case NFTA_SET_FLAGS:
      set.flags = attr.U32();
      break;
    case NFTA_SET_KEY_TYPE:
      set.key_type = attr.U32();
      break;
    case NFTA_SET_KEY_LEN:
      set.key_len = attr.U32();
      break;
    case NFTA_SET_DATA_TYPE:
      set.data_type = attr.U32();
      break;
    case NFTA_SET_DATA_LEN:
      set.data_len = attr.U32();
      break;
    case NFTA_SET_OBJ_TYPE:
      set.obj_type = attr.U32();
      break;
    case NFTA_SET_POLICY:
      set.policy = attr.U32();
      break;
    case NFTA_SET_DESC:
      DecodeSetDesc(attr, &set);
      break;
    case NFTA_SET_TIMEOUT:
      set.timeout = attr.U64();
      break;
    case NFTA_SET_GC_INTERVAL:
      set.gc_interval = attr.U32();
      break;
    case NFTA_SET_USERDATA:
      set.userdata = attr.Copy();
      break;
    case NFTA_SET_EXPR:
      set.exprs.push_back(DecodeExpr(attr));
      break;
    case NFTA_SET_EXPRESSIONS:
      set.exprs = DecodeExprList(attr);
      break;
    default:
      break;
  }
}

}  // namespace

namespace {

const nfgenmsg* HeaderOf(const nlmsghdr* message) {
  if (message->nlmsg_len < NLMSG_LENGTH(sizeof(nfgenmsg))) throw Malformed("the message is shorter than its header");
  return static_cast<const nfgenmsg*>(NLMSG_DATA(message));
}

}  // namespace

uint8_t FamilyOf(const nlmsghdr* message) { return HeaderOf(message)->nfgen_family; }

uint16_t ResourceOf(const nlmsghdr* message) { return HeaderOf(message)->res_id; }

TableInfo DecodeTable(const nlmsghdr* message) {
  TableInfo info;
  info.ref.family = FamilyOf(message);
  for (AttrReader reader(message, sizeof(nfgenmsg)); reader.Next();) {
    const AttrView& attr = reader.attr();
    switch (attr.type()) {
      case NFTA_TABLE_NAME:
        info.ref.table = std::string(attr.Text());
        break;
      case NFTA_TABLE_FLAGS:
        info.flags = attr.U32();
        break;
      case NFTA_TABLE_USE:
        info.use = attr.U32();
        break;
      case NFTA_TABLE_HANDLE:
        info.handle = attr.U64();
        break;
      case NFTA_TABLE_USERDATA:
        info.userdata = attr.Copy();
        break;
      case NFTA_TABLE_OWNER:
        info.owner = attr.U32();
        break;
      default:
        break;
    }
  }
  return info;
}

std::string_view TableOfChain(const nlmsghdr* message) {
  HeaderOf(message);
  for (AttrReader reader(message, sizeof(nfgenmsg)); reader.Next();) {
    if (reader.attr().type() == NFTA_CHAIN_TABLE) return reader.attr().Text();
  }
  return {};
}

ChainInfo DecodeChain(const nlmsghdr* message) {
  ChainInfo info;
  std::optional<uint32_t> policy;
  std::string type;
  info.ref.family = FamilyOf(message);
  for (AttrReader reader(message, sizeof(nfgenmsg)); reader.Next();) {
    const AttrView& attr = reader.attr();
    switch (attr.type()) {
      case NFTA_CHAIN_TABLE:
        info.ref.table = std::string(attr.Text());
        break;
      case NFTA_CHAIN_NAME:
        info.chain = std::string(attr.Text());
        break;
      case NFTA_CHAIN_HANDLE:
        info.handle = attr.U64();
        break;
      case NFTA_CHAIN_HOOK:
        info.base = DecodeHook(attr);
        break;
      case NFTA_CHAIN_POLICY:
        policy = attr.U32();
        break;
      case NFTA_CHAIN_TYPE:
        type = std::string(attr.Text());
        break;
      case NFTA_CHAIN_USE:
        info.use = attr.U32();
        break;
      case NFTA_CHAIN_FLAGS:
        info.flags = attr.U32();
        break;
      case NFTA_CHAIN_USERDATA:
        info.userdata = attr.Copy();
        break;
      default:
        break;
    }
  }
  if (info.base) {
    info.base->policy = policy;
    info.base->type = type;
  }
  return info;
}

RuleInfo DecodeRule(const nlmsghdr* message) {
  RuleInfo info;
  info.ref.family = FamilyOf(message);
  for (AttrReader reader(message, sizeof(nfgenmsg)); reader.Next();) {
    const AttrView& attr = reader.attr();
    switch (attr.type()) {
      case NFTA_RULE_TABLE:
        info.ref.table = std::string(attr.Text());
        break;
      case NFTA_RULE_CHAIN:
        info.chain = std::string(attr.Text());
        break;
      case NFTA_RULE_HANDLE:
        info.handle = attr.U64();
        break;
      case NFTA_RULE_POSITION:
        info.position = attr.U64();
        break;
      case NFTA_RULE_EXPRESSIONS:
        info.exprs = DecodeExprList(attr);
        break;
      case NFTA_RULE_USERDATA:
        info.userdata = attr.Copy();
        break;
      default:
        break;
    }
  }
  return info;
}

SetDump DecodeSet(const nlmsghdr* message) {
  SetDump dump;
  dump.ref.family = FamilyOf(message);
  for (AttrReader reader(message, sizeof(nfgenmsg)); reader.Next();) DecodeSetAttr(reader.attr(), &dump);
  // The kernel reports the size of its own verdict struct.
  if (dump.info.data_type == static_cast<uint32_t>(NFT_DATA_VERDICT)) dump.info.data_len.reset();
  return dump;
}

ObjectInfo DecodeObject(const nlmsghdr* message) {
  ObjectInfo info;
  AttrView data;
  info.ref.family = FamilyOf(message);
  for (AttrReader reader(message, sizeof(nfgenmsg)); reader.Next();) {
    const AttrView& attr = reader.attr();
    switch (attr.type()) {
      case NFTA_OBJ_TABLE:
        info.ref.table = std::string(attr.Text());
        break;
      case NFTA_OBJ_NAME:
        info.object = std::string(attr.Text());
        break;
      case NFTA_OBJ_TYPE:
        info.type = attr.U32();
        break;
      case NFTA_OBJ_HANDLE:
        info.handle = attr.U64();
        break;
      case NFTA_OBJ_USE:
        info.use = attr.U32();
        break;
      case NFTA_OBJ_DATA:
        data = attr;
        break;
      case NFTA_OBJ_USERDATA:
        info.userdata = attr.Copy();
        break;
      default:
        break;
    }
  }
  info.data = DecodeObjectData(info.type, data);
  return info;
}

GenInfo DecodeGen(const nlmsghdr* message) {
  GenInfo info;
  for (AttrReader reader(message, sizeof(nfgenmsg)); reader.Next();) {
    const AttrView& attr = reader.attr();
    if (attr.type() == NFTA_GEN_ID) info.id = attr.U32();
    if (attr.type() == NFTA_GEN_PROC_PID) info.pid = attr.U32();
    if (attr.type() == NFTA_GEN_PROC_NAME) info.name = std::string(attr.Text());
  }
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
  for (AttrReader reader(message, skip); reader.Next();) {
    const AttrView& attr = reader.attr();
    if (attr.type() == NLMSGERR_ATTR_MSG) reply.text = std::string(attr.Text());
    if (attr.type() == NLMSGERR_ATTR_OFFS && attr.length == sizeof(uint32_t)) reply.offset = Load32(attr.data);
  }
  return reply;
}

bool DecodeEvent(const nlmsghdr* message, EventView* event) {
  // Attribute numbers of the table's name, the object's name and its handle.
  uint16_t table = 0, name = 0, handle = 0;
  bool elements = false;
  switch (NFNL_MSG_TYPE(message->nlmsg_type)) {
    case NFT_MSG_NEWTABLE:
    case NFT_MSG_DELTABLE:
      table = NFTA_TABLE_NAME;
      handle = NFTA_TABLE_HANDLE;
      break;
    case NFT_MSG_NEWCHAIN:
    case NFT_MSG_DELCHAIN:
      table = NFTA_CHAIN_TABLE;
      name = NFTA_CHAIN_NAME;
      handle = NFTA_CHAIN_HANDLE;
      break;
    case NFT_MSG_NEWRULE:
    case NFT_MSG_DELRULE:
      table = NFTA_RULE_TABLE;
      name = NFTA_RULE_CHAIN;
      handle = NFTA_RULE_HANDLE;
      break;
    case NFT_MSG_NEWSET:
    case NFT_MSG_DELSET:
      table = NFTA_SET_TABLE;
      name = NFTA_SET_NAME;
      handle = NFTA_SET_HANDLE;
      break;
    case NFT_MSG_NEWSETELEM:
    case NFT_MSG_DELSETELEM:
      table = NFTA_SET_ELEM_LIST_TABLE;
      name = NFTA_SET_ELEM_LIST_SET;
      elements = true;
      break;
    case NFT_MSG_NEWOBJ:
    case NFT_MSG_DELOBJ:
      table = NFTA_OBJ_TABLE;
      name = NFTA_OBJ_NAME;
      handle = NFTA_OBJ_HANDLE;
      break;
    case NFT_MSG_NEWFLOWTABLE:
    case NFT_MSG_DELFLOWTABLE:
      table = NFTA_FLOWTABLE_TABLE;
      name = NFTA_FLOWTABLE_NAME;
      handle = NFTA_FLOWTABLE_HANDLE;
      break;
    default:
      return false;
  }
  event->family = FamilyOf(message);
  for (AttrReader reader(message, sizeof(nfgenmsg)); reader.Next();) {
    const AttrView& attr = reader.attr();
    if (attr.type() == table) event->table = attr.Text();
    if (name != 0 && attr.type() == name) event->name = attr.Text();
    if (handle != 0 && attr.type() == handle) event->handle = attr.U64();
    if (!elements || attr.type() != NFTA_SET_ELEM_LIST_ELEMENTS) continue;
    for (AttrReader list(attr); list.Next();) ++event->elements;
  }
  return true;
}

}  // namespace nftp

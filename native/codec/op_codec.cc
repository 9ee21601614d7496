#include "codec/op_codec.h"

#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/set.h>
#include <libnftnl/table.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include <memory>
#include <new>

#include "codec/expr_codec.h"
#include "codec/verdict_names.h"

namespace nftp {

namespace {

// libnftnl's setters call exit() on a wrong size. So sizes are fixed here, and lengths are checked when JS hands them
// over. Its objects serve tables, chains and sets. Rules use expr_codec, because nftnl_expr drops attributes that it
// does not know.
template <typename T, void (*Free)(const T*)>
struct Releaser {
  void operator()(T* object) const { Free(object); }
};
using Table = std::unique_ptr<nftnl_table, Releaser<nftnl_table, nftnl_table_free>>;
using Chain = std::unique_ptr<nftnl_chain, Releaser<nftnl_chain, nftnl_chain_free>>;
using Set = std::unique_ptr<nftnl_set, Releaser<nftnl_set, nftnl_set_free>>;

template <typename Holder, typename T>
Holder Own(T* object) {
  if (object == nullptr) throw std::bad_alloc();
  return Holder(object);
}

void Stored(int result) {
  if (result < 0) throw std::bad_alloc();
}

void EncodeTable(const Op& op, const TableOp& body, nlmsghdr* message) {
  const Table table = Own<Table>(nftnl_table_alloc());
  Stored(nftnl_table_set_str(table.get(), NFTNL_TABLE_NAME, op.ref.table.c_str()));
  if (body.flags) nftnl_table_set_u32(table.get(), NFTNL_TABLE_FLAGS, *body.flags);
  if (body.handle) nftnl_table_set_u64(table.get(), NFTNL_TABLE_HANDLE, *body.handle);
  if (body.userdata && !body.userdata->empty()) {
    Stored(nftnl_table_set_data(table.get(), NFTNL_TABLE_USERDATA, body.userdata->data(),
                                static_cast<uint32_t>(body.userdata->size())));
  }
  nftnl_table_nlmsg_build_payload(message, table.get());
}

void SetBaseChain(nftnl_chain* chain, const BaseChain& base) {
  Stored(nftnl_chain_set_str(chain, NFTNL_CHAIN_TYPE, base.type.c_str()));
  nftnl_chain_set_u32(chain, NFTNL_CHAIN_HOOKNUM, base.hook);
  nftnl_chain_set_s32(chain, NFTNL_CHAIN_PRIO, base.priority);
  if (base.policy) nftnl_chain_set_u32(chain, NFTNL_CHAIN_POLICY, *base.policy);
  if (base.devices.size() == 1) {
    // NFTA_HOOK_DEV is the form that kernels before 5.5 also know.
    Stored(nftnl_chain_set_str(chain, NFTNL_CHAIN_DEV, base.devices.front().c_str()));
  } else if (!base.devices.empty()) {
    std::vector<const char*> names;
    for (const std::string& device : base.devices) names.push_back(device.c_str());
    names.push_back(nullptr);
    Stored(nftnl_chain_set_array(chain, NFTNL_CHAIN_DEVICES, names.data()));
  }
}

void EncodeChain(const Op& op, const ChainOp& body, nlmsghdr* message) {
  const Chain chain = Own<Chain>(nftnl_chain_alloc());
  Stored(nftnl_chain_set_str(chain.get(), NFTNL_CHAIN_TABLE, op.ref.table.c_str()));
  Stored(nftnl_chain_set_str(chain.get(), NFTNL_CHAIN_NAME, body.chain.c_str()));
  if (body.handle) nftnl_chain_set_u64(chain.get(), NFTNL_CHAIN_HANDLE, *body.handle);
  if (!Removes(op.verb)) {
    if (body.base) SetBaseChain(chain.get(), *body.base);
    if (body.flags) nftnl_chain_set_u32(chain.get(), NFTNL_CHAIN_FLAGS, *body.flags);
    if (body.userdata && !body.userdata->empty()) {
      Stored(nftnl_chain_set_data(chain.get(), NFTNL_CHAIN_USERDATA, body.userdata->data(),
                                  static_cast<uint32_t>(body.userdata->size())));
    }
  }
  nftnl_chain_nlmsg_build_payload(message, chain.get());
}

void EncodeRule(const Op& op, const RuleOp& body, AttrWriter& writer) {
  writer.String(NFTA_RULE_TABLE, op.ref.table);
  if (body.chain) writer.String(NFTA_RULE_CHAIN, *body.chain);
  if (body.handle) writer.U64(NFTA_RULE_HANDLE, *body.handle);
  if (body.position) writer.U64(NFTA_RULE_POSITION, *body.position);
  if (Removes(op.verb) || op.verb == Verb::Flush) return;
  EncodeExprList(writer, NFTA_RULE_EXPRESSIONS, body.exprs);
  if (body.userdata && !body.userdata->empty()) {
    writer.Put(NFTA_RULE_USERDATA, body.userdata->data(), body.userdata->size());
  }
}

void FillSet(nftnl_set* set, const SetInfo& info) {
  nftnl_set_set_u32(set, NFTNL_SET_FLAGS, info.flags);
  nftnl_set_set_u32(set, NFTNL_SET_KEY_TYPE, info.key_type);
  nftnl_set_set_u32(set, NFTNL_SET_KEY_LEN, info.key_len);
  if (info.data_type) nftnl_set_set_u32(set, NFTNL_SET_DATA_TYPE, *info.data_type);
  if (info.data_len) nftnl_set_set_u32(set, NFTNL_SET_DATA_LEN, *info.data_len);
  if (info.obj_type) nftnl_set_set_u32(set, NFTNL_SET_OBJ_TYPE, *info.obj_type);
  if (info.size) nftnl_set_set_u32(set, NFTNL_SET_DESC_SIZE, *info.size);
  if (info.timeout) nftnl_set_set_u64(set, NFTNL_SET_TIMEOUT, *info.timeout);
  if (info.gc_interval) nftnl_set_set_u32(set, NFTNL_SET_GC_INTERVAL, *info.gc_interval);
  if (info.policy) nftnl_set_set_u32(set, NFTNL_SET_POLICY, *info.policy);
  if (!info.field_lens.empty()) {
    Stored(nftnl_set_set_data(set, NFTNL_SET_DESC_CONCAT, info.field_lens.data(),
                              static_cast<uint32_t>(info.field_lens.size())));
  }
  if (info.userdata && !info.userdata->empty()) {
    Stored(nftnl_set_set_data(set, NFTNL_SET_USERDATA, info.userdata->data(),
                              static_cast<uint32_t>(info.userdata->size())));
  }
}

void EncodeSet(const Op& op, const SetOp& body, uint32_t index, AttrWriter& writer) {
  const Set set = Own<Set>(nftnl_set_alloc());
  Stored(nftnl_set_set_str(set.get(), NFTNL_SET_TABLE, op.ref.table.c_str()));
  Stored(nftnl_set_set_str(set.get(), NFTNL_SET_NAME, body.info.set.c_str()));
  if (body.handle) nftnl_set_set_u64(set.get(), NFTNL_SET_HANDLE, *body.handle);
  if (!Removes(op.verb)) {
    FillSet(set.get(), body.info);
    nftnl_set_set_u32(set.get(), NFTNL_SET_ID, body.id.value_or(kAutomaticSetIds | index));
  }
  nftnl_set_nlmsg_build_payload(writer.message(), set.get());
  if (Removes(op.verb) || body.info.exprs.empty()) return;
  if (body.info.exprs.size() == 1) {
    EncodeExpr(writer, NFTA_SET_EXPR, body.info.exprs.front());
  } else {
    EncodeExprList(writer, NFTA_SET_EXPRESSIONS, body.info.exprs);
  }
}

// A removal with devices removes these devices; without devices it removes the flowtable.
void EncodeFlowtable(const Op& op, const FlowtableOp& body, AttrWriter& writer) {
  writer.String(NFTA_FLOWTABLE_TABLE, op.ref.table);
  writer.String(NFTA_FLOWTABLE_NAME, body.flowtable);
  if (Removes(op.verb) && body.devices.empty()) return;
  nlattr* const hook = writer.Nest(NFTA_FLOWTABLE_HOOK);
  writer.U32(NFTA_FLOWTABLE_HOOK_NUM, NF_NETDEV_INGRESS);
  writer.U32(NFTA_FLOWTABLE_HOOK_PRIORITY, static_cast<uint32_t>(body.priority));
  nlattr* const devices = writer.Nest(NFTA_FLOWTABLE_HOOK_DEVS);
  for (const std::string& device : body.devices) writer.String(NFTA_DEVICE_NAME, device);
  writer.EndNest(devices);
  writer.EndNest(hook);
  if (body.flags) writer.U32(NFTA_FLOWTABLE_FLAGS, *body.flags);
}

void EncodeObject(const Op& op, const ObjectOp& body, AttrWriter& writer) {
  writer.String(NFTA_OBJ_TABLE, op.ref.table);
  writer.String(NFTA_OBJ_NAME, body.object);
  writer.U32(NFTA_OBJ_TYPE, body.type);
  if (!body.data) return;
  EncodeExprData(writer, NFTA_OBJ_DATA, *body.data);
  if (body.userdata && !body.userdata->empty()) {
    writer.Put(NFTA_OBJ_USERDATA, body.userdata->data(), body.userdata->size());
  }
}

// The attributes that name an operation's object, with its message types.
struct Names {
  const char* kind;
  uint16_t add;
  uint16_t remove;
  uint16_t destroy;
  std::string name;
};

Names NamesOf(const Op& op) {
  struct Visitor {
    Names operator()(const TableOp&) const {
      return {"table", NFT_MSG_NEWTABLE, NFT_MSG_DELTABLE, kMsgDestroyTable, ""};
    }
    Names operator()(const ChainOp& chain) const {
      return {"chain", NFT_MSG_NEWCHAIN, NFT_MSG_DELCHAIN, kMsgDestroyChain, chain.chain};
    }
    Names operator()(const RuleOp& rule) const {
      return {"rule", NFT_MSG_NEWRULE, NFT_MSG_DELRULE, kMsgDestroyRule, rule.chain.value_or("")};
    }
    Names operator()(const SetOp& set) const {
      return {"set", NFT_MSG_NEWSET, NFT_MSG_DELSET, kMsgDestroySet, set.info.set};
    }
    Names operator()(const ElementsOp& elements) const {
      return {"elements", NFT_MSG_NEWSETELEM, NFT_MSG_DELSETELEM, kMsgDestroySetElem, elements.set};
    }
    Names operator()(const FlowtableOp& flowtable) const {
      return {"flowtable", NFT_MSG_NEWFLOWTABLE, NFT_MSG_DELFLOWTABLE, kMsgDestroyFlowtable, flowtable.flowtable};
    }
    Names operator()(const ObjectOp& object) const {
      return {"object", NFT_MSG_NEWOBJ, NFT_MSG_DELOBJ, kMsgDestroyObj, object.object};
    }
  };
  return std::visit(Visitor{}, op.body);
}

const char* VerbName(Verb verb) {
  switch (verb) {
    case Verb::Add:
      return "add";
    case Verb::Create:
      return "create";
    case Verb::Insert:
      return "insert";
    case Verb::Replace:
      return "replace";
    case Verb::Delete:
      return "delete";
    case Verb::Destroy:
      return "destroy";
    case Verb::Flush:
      return "flush";
  }
  return "?";
}

}  // namespace

MessageKind KindOf(const Op& op) {
  const Names names = NamesOf(op);
  constexpr uint16_t kSubsystem = NFNL_SUBSYS_NFTABLES << 8;
  switch (op.verb) {
    case Verb::Add:
      // A rule without NLM_F_APPEND is inserted at the head of the chain.
      return {static_cast<uint16_t>(kSubsystem | names.add),
              static_cast<uint16_t>(NLM_F_CREATE | (std::holds_alternative<RuleOp>(op.body) ? NLM_F_APPEND : 0))};
    case Verb::Create:
      return {static_cast<uint16_t>(kSubsystem | names.add), NLM_F_CREATE | NLM_F_EXCL};
    case Verb::Insert:
      return {static_cast<uint16_t>(kSubsystem | names.add), NLM_F_CREATE};
    case Verb::Replace:
      return {static_cast<uint16_t>(kSubsystem | names.add), NLM_F_REPLACE};
    case Verb::Destroy:
      return {static_cast<uint16_t>(kSubsystem | names.destroy), 0};
    case Verb::Delete:
    case Verb::Flush:
      return {static_cast<uint16_t>(kSubsystem | names.remove), 0};
  }
  return {};
}

std::string DescribeOp(const Op& op) {
  const Names names = NamesOf(op);
  std::string text = std::string(VerbName(op.verb)) + " " + names.kind + " " + std::string(FamilyText(op.ref.family)) +
                     " " + op.ref.table;
  if (!names.name.empty()) text += " " + names.name;
  return text;
}

size_t OpBound(const Op& op) {
  // Header, names, numbers, base chain. An attribute with its header is at most 4 bytes longer than its text.
  constexpr size_t kFixed = 1024 + 2 * (kMaxName + 8) + kMaxUserdata;
  struct Visitor {
    size_t operator()(const TableOp&) const { return kFixed; }
    size_t operator()(const ChainOp& chain) const {
      return kFixed + (chain.base ? chain.base->devices.size() * (kAttrHeader + kMaxDeviceName + 1) : 0);
    }
    size_t operator()(const RuleOp& rule) const { return kFixed + ExprListBound(rule.exprs); }
    size_t operator()(const SetOp& set) const { return kFixed + ExprListBound(set.info.exprs); }
    size_t operator()(const ElementsOp&) const { return kFixed; }
    size_t operator()(const FlowtableOp& flowtable) const {
      return kFixed + flowtable.devices.size() * (kAttrHeader + kMaxDeviceName + 1);
    }
    size_t operator()(const ObjectOp& object) const {
      return kFixed + (object.data ? ExprListBound({*object.data}) : 0);
    }
  };
  return std::visit(Visitor{}, op.body);
}

nlmsghdr* BeginMessage(uint8_t* at, uint16_t type, uint16_t flags, uint8_t family, uint32_t seq) {
  // NFT_MSG_*; nftnl_nlmsg_build_hdr adds the subsystem itself.
  return nftnl_nlmsg_build_hdr(reinterpret_cast<char*>(at), NFNL_MSG_TYPE(type), family, flags, seq);
}

size_t EncodeOp(const Op& op, uint32_t index, uint32_t seq, uint8_t* at, const uint8_t* limit) {
  // libnftnl writes without checking how much room there is.
  if (static_cast<size_t>(limit - at) < OpBound(op)) throw Failure::Invalid("the batch is larger than computed");
  const MessageKind kind = KindOf(op);
  nlmsghdr* message = BeginMessage(at, kind.type, kind.flags, op.ref.family, seq);
  AttrWriter writer(message, limit);
  if (const auto* table = std::get_if<TableOp>(&op.body)) {
    EncodeTable(op, *table, message);
  } else if (const auto* chain = std::get_if<ChainOp>(&op.body)) {
    EncodeChain(op, *chain, message);
  } else if (const auto* rule = std::get_if<RuleOp>(&op.body)) {
    EncodeRule(op, *rule, writer);
  } else if (const auto* set = std::get_if<SetOp>(&op.body)) {
    EncodeSet(op, *set, index, writer);
  } else if (const auto* elements = std::get_if<ElementsOp>(&op.body)) {
    // A request without NFTA_SET_ELEM_LIST_ELEMENTS means all elements.
    writer.String(NFTA_SET_ELEM_LIST_TABLE, op.ref.table);
    writer.String(NFTA_SET_ELEM_LIST_SET, elements->set);
  } else if (const auto* flowtable = std::get_if<FlowtableOp>(&op.body)) {
    EncodeFlowtable(op, *flowtable, writer);
  } else if (const auto* object = std::get_if<ObjectOp>(&op.body)) {
    EncodeObject(op, *object, writer);
  }
  return Align4(message->nlmsg_len);
}

}  // namespace nftp

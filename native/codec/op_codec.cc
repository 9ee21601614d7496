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
#include "codec/names.h"

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

// Sets one of libnftnl's NFTNL_*_USERDATA by its function `set`.
template <typename T>
void SetUserdata(int (*set)(T*, uint16_t, const void*, uint32_t), T* object, uint16_t attribute,
                 const std::optional<Bytes>& userdata) {
  if (!userdata || userdata->empty()) return;
  Stored(set(object, attribute, userdata->data(), static_cast<uint32_t>(userdata->size())));
}

void PutUserdata(AttrWriter& writer, uint16_t type, const std::optional<Bytes>& userdata) {
  if (userdata && !userdata->empty()) writer.Put(type, userdata->data(), userdata->size());
}

void EncodeTable(const Op& op, const TableOp& body, nlmsghdr* message) {
  const Table table = Own<Table>(nftnl_table_alloc());
  Stored(nftnl_table_set_str(table.get(), NFTNL_TABLE_NAME, op.ref.table.c_str()));
  if (body.flags) nftnl_table_set_u32(table.get(), NFTNL_TABLE_FLAGS, *body.flags);
  if (body.handle) nftnl_table_set_u64(table.get(), NFTNL_TABLE_HANDLE, *body.handle);
  SetUserdata(nftnl_table_set_data, table.get(), NFTNL_TABLE_USERDATA, body.userdata);
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
    SetUserdata(nftnl_chain_set_data, chain.get(), NFTNL_CHAIN_USERDATA, body.userdata);
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
  PutUserdata(writer, NFTA_RULE_USERDATA, body.userdata);
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
  SetUserdata(nftnl_set_set_data, set, NFTNL_SET_USERDATA, info.userdata);
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
  PutUserdata(writer, NFTA_OBJ_USERDATA, body.userdata);
}

std::string ObjectName(const Op& op) {
  struct Visitor {
    std::string operator()(const TableOp&) const { return ""; }
    std::string operator()(const ChainOp& chain) const { return chain.chain; }
    std::string operator()(const RuleOp& rule) const { return rule.chain.value_or(""); }
    std::string operator()(const SetOp& set) const { return set.info.set; }
    std::string operator()(const ElementsOp& elements) const { return elements.set; }
    std::string operator()(const FlowtableOp& flowtable) const { return flowtable.flowtable; }
    std::string operator()(const ObjectOp& object) const { return object.object; }
  };
  return std::visit(Visitor{}, op.body);
}

}  // namespace

nlmsghdr* BeginMessage(const Op& op, uint32_t seq, uint8_t* at) {
  const ObjectKind& kind = kObjectKinds[op.body.index()];
  switch (op.verb) {
    case Verb::Destroy:
      return BeginMessage(at, kind.destroy, 0, op.ref.family, seq);
    case Verb::Delete:
    case Verb::Flush:
      return BeginMessage(at, kind.remove, 0, op.ref.family, seq);
    default:
      break;
  }
  uint16_t flags = op.verb == Verb::Replace ? NLM_F_REPLACE : NLM_F_CREATE;
  if (op.verb == Verb::Create) flags |= NLM_F_EXCL;
  // A rule without NLM_F_APPEND is inserted at the head of the chain.
  if (op.verb == Verb::Add && std::holds_alternative<RuleOp>(op.body)) flags |= NLM_F_APPEND;
  return BeginMessage(at, kind.add, flags, op.ref.family, seq);
}

std::string DescribeOp(const Op& op) {
  std::string text(NameOf(kVerbs, op.verb));
  text.append(" ").append(kObjectKinds[op.body.index()].name);
  text.append(" ").append(NameOf(kFamilies, op.ref.family)).append(" ").append(op.ref.table);
  const std::string name = ObjectName(op);
  return name.empty() ? text : text + " " + name;
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
  return nftnl_nlmsg_build_hdr(reinterpret_cast<char*>(at), type, family, flags, seq);
}

size_t EncodeOp(const Op& op, uint32_t index, uint32_t seq, uint8_t* at, const uint8_t* limit) {
  // libnftnl writes without checking how much room there is.
  if (static_cast<size_t>(limit - at) < OpBound(op)) throw Failure::Invalid("the batch is larger than computed");
  nlmsghdr* message = BeginMessage(op, seq, at);
  AttrWriter writer(message, limit);
  struct Visitor {
    const Op& op;
    uint32_t index;
    AttrWriter& writer;

    void operator()(const TableOp& table) const { EncodeTable(op, table, writer.message()); }
    void operator()(const ChainOp& chain) const { EncodeChain(op, chain, writer.message()); }
    void operator()(const RuleOp& rule) const { EncodeRule(op, rule, writer); }
    void operator()(const SetOp& set) const { EncodeSet(op, set, index, writer); }
    void operator()(const ElementsOp& elements) const {
      // A request without NFTA_SET_ELEM_LIST_ELEMENTS means all elements.
      writer.String(NFTA_SET_ELEM_LIST_TABLE, op.ref.table);
      writer.String(NFTA_SET_ELEM_LIST_SET, elements.set);
    }
    void operator()(const FlowtableOp& flowtable) const { EncodeFlowtable(op, flowtable, writer); }
    void operator()(const ObjectOp& object) const { EncodeObject(op, object, writer); }
  };
  std::visit(Visitor{op, index, writer}, op.body);
  return Align4(message->nlmsg_len);
}

}  // namespace nftp

// C++ counterparts of the types in src/nft/kernel/kernel.ts. They hold no JS values, so any thread may use them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace nftp {

using Bytes = std::vector<uint8_t>;

struct Verdict {
  int32_t code = 0;   // NF_ACCEPT, NFT_JUMP, ...
  std::string chain;  // jump and goto alone
};

struct ExprDesc;
struct AttrDesc;
struct Expr;

// One attribute of an expression. desc->kind decides which member is valid.
struct AttrValue {
  const AttrDesc* desc = nullptr;
  uint64_t number = 0;
  std::string text;
  Bytes bytes;
  std::optional<Verdict> verdict;
  std::vector<Expr> exprs;
  std::vector<std::optional<uint32_t>> numbers;
};

// An attribute that the codec does not know; `type` carries the NLA_F_* bits.
struct UnknownAttr {
  uint16_t type = 0;
  Bytes bytes;
};

struct Expr {
  const ExprDesc* desc = nullptr;  // null: opaque
  std::string name;
  std::vector<AttrValue> attrs;
  std::vector<UnknownAttr> extra;
  Bytes opaque;
};

struct TableRef {
  uint8_t family = 0;  // NFPROTO_*
  std::string table;
};

struct BaseChain {
  std::string type;
  uint32_t hook = 0;
  int32_t priority = 0;
  std::optional<uint32_t> policy;  // NF_DROP or NF_ACCEPT
  std::vector<std::string> devices;
};

// Columns of an ElementBatch's records.
struct ElementLayout {
  uint32_t key_len = 0;
  bool key_end = false;
  uint32_t data_len = 0;
  bool verdict_map = false;
  bool flags = false;
  bool timeouts = false;
  bool expirations = false;
  // Packets and bytes of each element's counter.
  bool counters = false;

  uint32_t flags_at() const { return key_len * (key_end ? 2u : 1u) + data_len; }
  uint32_t stride() const {
    return flags_at() + (flags ? 4u : 0u) + (timeouts ? 8u : 0u) + (expirations ? 8u : 0u) + (counters ? 16u : 0u);
  }
};

enum class Verb : uint8_t { Add, Create, Insert, Replace, Delete, Destroy, Flush };

constexpr bool Removes(Verb verb) { return verb == Verb::Delete || verb == Verb::Destroy; }

struct TableOp {
  std::optional<uint32_t> flags;
  std::optional<Bytes> userdata;
  std::optional<uint64_t> handle;
};

struct ChainOp {
  std::string chain;
  std::optional<BaseChain> base;
  std::optional<uint32_t> flags;
  std::optional<Bytes> userdata;
  std::optional<uint64_t> handle;
};

struct RuleOp {
  std::optional<std::string> chain;  // absent: flush the whole table
  std::vector<Expr> exprs;
  std::optional<Bytes> userdata;
  std::optional<uint64_t> handle;
  std::optional<uint64_t> position;
};

struct SetInfo {
  std::string set;
  uint32_t flags = 0;
  uint32_t key_type = 0;
  uint32_t key_len = 0;
  std::optional<uint32_t> data_type;
  std::optional<uint32_t> data_len;
  std::optional<uint32_t> obj_type;
  std::optional<uint32_t> size;
  std::optional<uint64_t> timeout;
  std::optional<uint32_t> gc_interval;
  std::optional<uint32_t> policy;
  std::vector<uint8_t> field_lens;
  std::vector<Expr> exprs;
  std::optional<Bytes> userdata;
};

struct SetOp {
  SetInfo info;
  std::optional<uint32_t> id;
  std::optional<uint64_t> handle;
};

// The parts of an element that its packed record cannot hold.
struct ElementExtra {
  uint32_t record = 0;
  std::string object;  // name of the stateful object that the element maps to; empty if none
  Bytes userdata;
};

struct ElementsOp {
  std::string set;
  std::optional<uint32_t> set_id;
  ElementLayout layout;
  // Records to add whose counters start with the count of the kernel's element with the same key (CarriedCounts).
  std::vector<uint32_t> carried;
  uint64_t count = 0;
  std::vector<Verdict> verdicts;
  // Objects and userdata of records to add, by ascending record.
  std::vector<ElementExtra> extras;
};

// A flowtable at the ingress hook of devices. If the flowtable exists, its devices are added or, with Verb::Delete,
// removed.
struct FlowtableOp {
  std::string flowtable;
  int32_t priority = 0;
  std::optional<uint32_t> flags;
  std::vector<std::string> devices;
};

// A named object (counter, quota, limit, ct helper).
struct ObjectOp {
  std::string object;
  uint32_t type = 0;
  std::optional<Expr> data;  // absent: removed
  std::optional<Bytes> userdata;
};

struct Op {
  Verb verb = Verb::Add;
  TableRef ref;
  std::variant<TableOp, ChainOp, RuleOp, SetOp, ElementsOp, FlowtableOp, ObjectOp> body;
};

struct TableInfo {
  TableRef ref;
  uint64_t handle = 0;
  uint32_t flags = 0;
  uint32_t use = 0;
  std::optional<Bytes> userdata;
  std::optional<uint32_t> owner;
};

struct ChainInfo {
  TableRef ref;
  std::string chain;
  uint64_t handle = 0;
  std::optional<BaseChain> base;
  uint32_t flags = 0;
  uint32_t use = 0;
  std::optional<Bytes> userdata;
};

struct RuleInfo {
  TableRef ref;
  std::string chain;
  uint64_t handle = 0;
  std::optional<uint64_t> position;
  std::vector<Expr> exprs;
  std::optional<Bytes> userdata;
};

struct SetDump {
  TableRef ref;
  SetInfo info;
  uint64_t handle = 0;
  std::optional<uint32_t> id;
  std::optional<uint32_t> count;
};

struct ObjectInfo {
  TableRef ref;
  std::string object;
  uint32_t type = 0;
  uint64_t handle = 0;
  uint32_t use = 0;
  Expr data;
  std::optional<Bytes> userdata;
};

struct GenInfo {
  uint32_t id = 0;
  std::optional<uint32_t> pid;
  std::optional<std::string> name;
};

}  // namespace nftp

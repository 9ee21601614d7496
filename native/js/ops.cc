// Reads operations from JS.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include <algorithm>
#include <string_view>

#include "codec/element_codec.h"
#include "codec/names.h"
#include "codec/op_codec.h"
#include "js/reader.h"
#include "js/values.h"

namespace nftp {

namespace {

constexpr uint32_t kMaxNames = 1 << 20;

// A verdict map names each verdict once, and no table needs more chains than this.
constexpr uint32_t kMaxVerdicts = 1 << 20;
constexpr uint32_t kMaxFields = 16;  // NFT_REG32_COUNT
constexpr size_t kMaxTypeName = 15;

uint8_t ReadFamily(Napi::Env env, napi_value value, const Where& where) {
  const std::string name = ReadText(env, value, kMaxTypeName, where);
  const auto* family = FindName(kFamilies, name);
  if (family == nullptr) where.Fail("unknown family \"" + name + "\"");
  return family->number;
}

TableRef ReadRef(Napi::Env env, napi_value object, const Where& where) {
  TableRef ref;
  ref.family = ReadFamily(env, Get(env, object, "family"), Where(where, "family"));
  ref.table = RequiredName(env, object, "table", where);
  return ref;
}

Verb ReadVerb(Napi::Env env, napi_value object, const Where& where) {
  const std::string name = RequiredName(env, object, "op", where);
  const auto* verb = FindName(kVerbs, name);
  if (verb == nullptr) Where(where, "op").Fail("unknown operation \"" + name + "\"");
  return verb->number;
}

std::vector<std::string> ReadDevices(Napi::Env env, napi_value object, const Where& where) {
  std::vector<std::string> names;
  const napi_value devices = Get(env, object, "devices");
  if (IsAbsent(env, devices)) return names;
  const Where at(where, "devices");
  const uint32_t length = ReadArrayLength(env, devices, kMaxDevices, at);
  for (uint32_t i = 0; i < length; ++i) {
    names.push_back(ReadText(env, GetElement(env, devices, i), kMaxDeviceName, Where(at, i)));
  }
  return names;
}

BaseChain ReadBaseChain(Napi::Env env, napi_value value, const Where& where) {
  WantObject(env, value, where);
  BaseChain base;
  base.type = ReadText(env, Get(env, value, "type"), kMaxTypeName, Where(where, "type"));
  base.hook = RequiredU32(env, value, "hook", where);
  base.priority = static_cast<int32_t>(
      ReadInteger(env, Get(env, value, "priority"), INT32_MIN, INT32_MAX, Where(where, "priority")));
  const napi_value policy = Get(env, value, "policy");
  if (!IsAbsent(env, policy)) {
    const std::string name = ReadText(env, policy, kMaxTypeName, Where(where, "policy"));
    if (name != "accept" && name != "drop") Where(where, "policy").Fail("expected \"accept\" or \"drop\"");
    base.policy = name == "accept" ? NF_ACCEPT : NF_DROP;
  }
  base.devices = ReadDevices(env, value, where);
  return base;
}

SetInfo ReadSet(Napi::Env env, napi_value object, const Where& where) {
  SetInfo set;
  set.set = RequiredName(env, object, "set", where);
  set.flags = RequiredU32(env, object, "flags", where);
  set.key_type = RequiredU32(env, object, "keyType", where);
  set.key_len =
      static_cast<uint32_t>(ReadInteger(env, Get(env, object, "keyLen"), 1, kMaxKeyLen, Where(where, "keyLen")));
  set.data_type = OptionalU32(env, object, "dataType", where);
  const napi_value data_len = Get(env, object, "dataLen");
  if (!IsAbsent(env, data_len)) {
    set.data_len = static_cast<uint32_t>(ReadInteger(env, data_len, 0, kMaxDataLen, Where(where, "dataLen")));
  }
  set.obj_type = OptionalU32(env, object, "objType", where);
  set.size = OptionalU32(env, object, "size", where);
  set.timeout = OptionalU64(env, object, "timeout", where);
  set.gc_interval = OptionalU32(env, object, "gcInterval", where);
  set.policy = OptionalU32(env, object, "policy", where);
  const napi_value fields = Get(env, object, "fieldLens");
  if (!IsAbsent(env, fields)) {
    const Where at(where, "fieldLens");
    const uint32_t length = ReadArrayLength(env, fields, kMaxFields, at);
    for (uint32_t i = 0; i < length; ++i) {
      set.field_lens.push_back(
          static_cast<uint8_t>(ReadInteger(env, GetElement(env, fields, i), 1, kMaxKeyLen, Where(at, i))));
    }
  }
  const napi_value exprs = Get(env, object, "exprs");
  if (!IsAbsent(env, exprs)) set.exprs = ReadExprs(env, exprs, 0, Where(where, "exprs"));
  set.userdata = OptionalBytes(env, object, "userdata", kMaxUserdata, where);
  return set;
}

std::vector<ElementExtra> ReadExtras(Napi::Env env, napi_value value, uint64_t count, const Where& where) {
  std::vector<ElementExtra> extras(ReadArrayLength(env, value, static_cast<uint32_t>(count), where));
  for (uint32_t i = 0; i < extras.size(); ++i) {
    const Where at(where, i);
    const napi_value entry = GetElement(env, value, i);
    WantObject(env, entry, at);
    const double last = static_cast<double>(count) - 1;
    extras[i].record = static_cast<uint32_t>(ReadInteger(env, Get(env, entry, "record"), 0, last, Where(at, "record")));
    if (!IsAbsent(env, Get(env, entry, "object"))) extras[i].object = RequiredName(env, entry, "object", at);
    if (auto userdata = OptionalBytes(env, entry, "userdata", kMaxUserdata, at))
      extras[i].userdata = std::move(*userdata);
    if (extras[i].object.empty() && extras[i].userdata.empty()) Where(at, "userdata").Fail("expected 1 to 256 bytes");
  }
  std::sort(extras.begin(), extras.end(), [](const auto& a, const auto& b) { return a.record < b.record; });
  for (size_t i = 1; i < extras.size(); ++i) {
    if (extras[i].record == extras[i - 1].record) where.Fail("two entries for one record");
  }
  return extras;
}

ElementsOp ReadElements(Napi::Env env, napi_value object, const Where& where, LongParts* parts) {
  ElementsOp op;
  op.set = RequiredName(env, object, "set", where);
  op.set_id = OptionalU32(env, object, "setId", where);
  const napi_value batch = Get(env, object, "elements");
  const Where at(where, "elements");
  WantObject(env, batch, at);
  constexpr double kMostRecords = 4294967295.0;
  op.count = static_cast<uint64_t>(ReadInteger(env, Get(env, batch, "count"), 0, kMostRecords, Where(at, "count")));
  ElementLayout& layout = op.layout;
  layout.key_len =
      static_cast<uint32_t>(ReadInteger(env, Get(env, batch, "keyLen"), 1, kMaxKeyLen, Where(at, "keyLen")));
  layout.data_len =
      static_cast<uint32_t>(ReadInteger(env, Get(env, batch, "dataLen"), 0, kMaxDataLen, Where(at, "dataLen")));
  layout.key_end = OptionalBool(env, batch, "keyEnd", at);
  layout.flags = OptionalBool(env, batch, "flags", at);
  layout.timeouts = OptionalBool(env, batch, "timeouts", at);
  layout.expirations = OptionalBool(env, batch, "expirations", at);
  layout.counters = OptionalBool(env, batch, "counters", at);
  const napi_value carry = Get(env, object, "carry");
  if (!IsAbsent(env, carry)) op.carried = ReadIndices(env, carry, op.count, Where(where, "carry"));
  if (!op.carried.empty() && !layout.counters) Where(where, "carry").Fail("the set's elements have no counters");
  const napi_value extras = Get(env, batch, "extras");
  if (!IsAbsent(env, extras)) op.extras = ReadExtras(env, extras, op.count, Where(at, "extras"));
  const napi_value verdicts = Get(env, batch, "verdicts");
  layout.verdict_map = !IsAbsent(env, verdicts);
  if (layout.verdict_map) {
    parts->verdicts = verdicts;
    parts->verdict_count = ReadArrayLength(env, verdicts, kMaxVerdicts, Where(at, "verdicts"));
    op.verdicts.reserve(parts->verdict_count);
    // A removal needs only the key, and may come without data.
    if (layout.data_len == 0) {
      layout.verdict_map = false;
    } else if (layout.data_len != 4) {
      Where(at, "dataLen").Fail("expected 4, because the set is a verdict map");
    }
  }
  parts->bytes = Get(env, batch, "bytes");
  const ByteView view = ReadBytes(env, parts->bytes, Where(at, "bytes"));
  if (view.length != op.count * layout.stride()) {
    Where(at, "bytes")
        .Fail("expected " + std::to_string(op.count) + " records of " + std::to_string(layout.stride()) +
              " bytes, found " + std::to_string(view.length) + " bytes");
  }
  return op;
}

RuleOp ReadRule(Napi::Env env, napi_value object, Verb verb, const Where& where) {
  RuleOp rule;
  const napi_value chain = Get(env, object, "chain");
  if (verb != Verb::Flush || !IsAbsent(env, chain)) rule.chain = RequiredName(env, object, "chain", where);
  if (verb == Verb::Flush) return rule;
  if (verb == Verb::Replace || Removes(verb)) {
    rule.handle = ReadU64(env, Get(env, object, "handle"), Where(where, "handle"));
  } else {
    rule.position = OptionalU64(env, object, "position", where);
  }
  if (Removes(verb)) return rule;
  rule.exprs = ReadExprs(env, Get(env, object, "exprs"), 0, Where(where, "exprs"));
  rule.userdata = OptionalBytes(env, object, "userdata", kMaxUserdata, where);
  return rule;
}

SetOp ReadSetOp(Napi::Env env, napi_value object, Verb verb, const Where& where) {
  SetOp op;
  if (Removes(verb)) {
    op.info.set = RequiredName(env, object, "set", where);
    op.handle = OptionalU64(env, object, "handle", where);
    return op;
  }
  op.info = ReadSet(env, object, where);
  op.id = OptionalU32(env, object, "id", where);
  if (op.id && *op.id >= kAutomaticSetIds) Where(where, "id").Fail("expected an integer from 0 to 2147483647");
  return op;
}

ChainOp ReadChain(Napi::Env env, napi_value object, const Where& where) {
  ChainOp chain;
  chain.chain = RequiredName(env, object, "chain", where);
  const napi_value base = Get(env, object, "base");
  if (!IsAbsent(env, base)) chain.base = ReadBaseChain(env, base, Where(where, "base"));
  chain.flags = OptionalU32(env, object, "flags", where);
  chain.userdata = OptionalBytes(env, object, "userdata", kMaxUserdata, where);
  chain.handle = OptionalU64(env, object, "handle", where);
  return chain;
}

TableOp ReadTable(Napi::Env env, napi_value object, const Where& where) {
  TableOp table;
  table.flags = OptionalU32(env, object, "flags", where);
  table.userdata = OptionalBytes(env, object, "userdata", kMaxUserdata, where);
  table.handle = OptionalU64(env, object, "handle", where);
  return table;
}

FlowtableOp ReadFlowtable(Napi::Env env, napi_value object, Verb verb, const Where& where) {
  FlowtableOp flowtable;
  flowtable.flowtable = RequiredName(env, object, "flowtable", where);
  flowtable.devices = ReadDevices(env, object, where);
  if (Removes(verb) && flowtable.devices.empty()) return flowtable;
  flowtable.priority = static_cast<int32_t>(
      ReadInteger(env, Get(env, object, "priority"), INT32_MIN, INT32_MAX, Where(where, "priority")));
  if (!Removes(verb)) flowtable.flags = OptionalU32(env, object, "flags", where);
  return flowtable;
}

ObjectOp ReadObject(Napi::Env env, napi_value object, Verb verb, const Where& where) {
  ObjectOp op;
  op.object = RequiredName(env, object, "object", where);
  op.type = RequiredU32(env, object, "objType", where);
  if (Removes(verb)) return op;
  op.data = ReadObjectData(env, Get(env, object, "data"), op.type, Where(where, "data"));
  op.userdata = OptionalBytes(env, object, "userdata", kMaxUserdata, where);
  return op;
}

// Whether a kind of object allows this verb, as defined by type Op of src/nft/kernel/kernel.ts.
bool Allowed(std::string_view kind, Verb verb) {
  switch (verb) {
    case Verb::Add:
    case Verb::Delete:
    case Verb::Destroy:
      return true;
    case Verb::Create:
      return kind != "rule";
    case Verb::Insert:
    case Verb::Replace:
      return kind == "rule";
    case Verb::Flush:
      return kind == "rule" || kind == "elements";
  }
  return false;
}

}  // namespace

void ReadVerdicts(Napi::Env env, napi_value verdicts, uint32_t from, uint32_t to, uint32_t index, ElementsOp* op) {
  const Where where("op " + std::to_string(index) + ": ");
  const Where elements(where, "elements");
  const Where at(elements, "verdicts");
  for (uint32_t i = from; i < to; ++i) {
    const Napi::HandleScope scope(env);
    op->verdicts.push_back(ReadVerdict(env, GetElement(env, verdicts, i), Where(at, i)));
  }
}

Op ReadOp(Napi::Env env, napi_value value, uint32_t index, LongParts* parts) {
  const Where where("op " + std::to_string(index) + ": ");
  if (TypeOf(env, value) != napi_object) throw Failure::Invalid("op " + std::to_string(index) + ": expected an object");
  Op op;
  op.verb = ReadVerb(env, value, where);
  const std::string kind = RequiredName(env, value, "kind", where);
  if (!Allowed(kind, op.verb)) Where(where, "op").Fail("not an operation of kind \"" + kind + "\"");
  op.ref = ReadRef(env, value, where);
  if (kind == "table") {
    op.body = ReadTable(env, value, where);
  } else if (kind == "chain") {
    op.body = ReadChain(env, value, where);
  } else if (kind == "rule") {
    op.body = ReadRule(env, value, op.verb, where);
  } else if (kind == "set") {
    op.body = ReadSetOp(env, value, op.verb, where);
  } else if (kind == "flowtable") {
    op.body = ReadFlowtable(env, value, op.verb, where);
  } else if (kind == "object") {
    op.body = ReadObject(env, value, op.verb, where);
  } else if (kind == "elements") {
    if (op.verb == Verb::Flush) {
      ElementsOp flush;
      flush.set = RequiredName(env, value, "set", where);
      op.body = std::move(flush);
    } else {
      op.body = ReadElements(env, value, where, parts);
    }
  } else {
    Where(where, "kind").Fail("unknown kind \"" + kind + "\"");
  }
  return op;
}

BatchOptions ReadBatchOptions(Napi::Env env, napi_value value) {
  BatchOptions options;
  if (IsAbsent(env, value)) return options;
  const Where where("options: ");
  WantObject(env, value, where);
  options.expect_generation = OptionalU32(env, value, "expectGeneration", where);
  options.dry_run = OptionalBool(env, value, "dryRun", where);
  return options;
}

ConnectionOptions ReadConnectionOptions(Napi::Env env, napi_value value) {
  ConnectionOptions options;
  if (IsAbsent(env, value)) return options;
  const Where where("options: ");
  WantObject(env, value, where);
  constexpr size_t kMaxPath = 4095;
  const napi_value netns = Get(env, value, "netns");
  if (!IsAbsent(env, netns)) options.netns = ReadText(env, netns, kMaxPath, Where(where, "netns"));
  const napi_value name = Get(env, value, "name");
  if (!IsAbsent(env, name)) options.name = ReadText(env, name, ConnectionOptions::kMostNameBytes, Where(where, "name"));
  options.send_buffer = OptionalU32(env, value, "sendBufferBytes", where).value_or(0);
  options.receive_buffer = OptionalU32(env, value, "receiveBufferBytes", where).value_or(0);
  return options;
}

MonitorOptions ReadMonitorOptions(Napi::Env env, napi_value value) {
  MonitorOptions options;
  const Where where("options: ");
  WantObject(env, value, where);
  const napi_value tables = Get(env, value, "tables");
  options.all_tables = IsAbsent(env, tables);
  if (!options.all_tables) {
    constexpr uint32_t kMaxTables = 1024;
    const Where at(where, "tables");
    const uint32_t length = ReadArrayLength(env, tables, kMaxTables, at);
    for (uint32_t i = 0; i < length; ++i) {
      const napi_value table = GetElement(env, tables, i);
      WantObject(env, table, Where(at, i));
      options.tables.push_back(ReadRef(env, table, Where(at, i)));
    }
  }
  options.skip_port = OptionalU32(env, value, "skipPort", where);
  return options;
}

TableRef ReadTableRef(Napi::Env env, napi_value value) {
  const Where where("table: ");
  WantObject(env, value, where);
  return ReadRef(env, value, where);
}

SetInfo ReadSetInfo(Napi::Env env, napi_value value) {
  const Where where("set: ");
  WantObject(env, value, where);
  return ReadSet(env, value, where);
}

std::optional<std::vector<std::string>> ReadOptionalNames(Napi::Env env, napi_value value, const char* what) {
  if (IsAbsent(env, value)) return std::nullopt;
  const Where where{std::string(what)};
  const uint32_t length = ReadArrayLength(env, value, kMaxNames, where);
  std::vector<std::string> names;
  names.reserve(length);
  for (uint32_t i = 0; i < length; ++i) {
    names.push_back(ReadText(env, GetElement(env, value, i), kMaxName, Where(where, i)));
  }
  return names;
}

std::optional<std::string> ReadOptionalName(Napi::Env env, napi_value value, const char* what) {
  if (IsAbsent(env, value)) return std::nullopt;
  return ReadText(env, value, kMaxName, Where(std::string(what)));
}

uint8_t ReadOptionalFamily(Napi::Env env, napi_value value) {
  if (IsAbsent(env, value)) return 0;
  return ReadFamily(env, value, Where(std::string("family")));
}

}  // namespace nftp

#include "js/writer.h"

#include <linux/netfilter/nf_tables.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

#include "codec/expr_table.h"
#include "codec/names.h"

namespace nftp {

namespace {

using Napi::Env;
using Napi::Object;
using Napi::Value;

void PutRef(Object object, const TableRef& ref) {
  Put(object, "family", NameOf(kFamilies, ref.family));
  Put(object, "table", ref.table);
}

Value AttrToJs(Env env, const AttrValue& attr) {
  switch (attr.desc->kind) {
    case AttrKind::U8:
    case AttrKind::U16:
    case AttrKind::U32:
    case AttrKind::U32Host:
      return ToJs(env, static_cast<double>(attr.number));
    case AttrKind::U64:
      return ToJs(env, attr.number);
    case AttrKind::String:
      return ToJs(env, attr.text);
    case AttrKind::Value:
    case AttrKind::Data:
      return attr.verdict ? ToJs(env, *attr.verdict) : ToJs(env, attr.bytes);
    case AttrKind::Exprs:
      return ToJs(env, attr.exprs);
    case AttrKind::Numbers:
      return ToJs(env, attr.numbers);
    case AttrKind::Padding:
      break;
  }
  return env.Undefined();
}

}  // namespace

// Only this file needs these. Not in the unnamed namespace, where the templates of writer.h would not find them.
static Value ToJs(Env env, const UnknownAttr& attr) {
  const Object object = Object::New(env);
  Put(object, "type", uint32_t{attr.type});
  Put(object, "bytes", attr.bytes);
  return object;
}

static Value ToJs(Env env, const BaseChain& base) {
  const Object object = Object::New(env);
  Put(object, "type", base.type);
  Put(object, "hook", base.hook);
  Put(object, "priority", static_cast<double>(base.priority));
  if (base.policy) Put(object, "policy", std::string_view(*base.policy == NF_DROP ? "drop" : "accept"));
  if (!base.devices.empty()) Put(object, "devices", base.devices);
  return object;
}

static Value ToJs(Env env, const ChangeEvent& event) {
  const Object object = Object::New(env);
  Put(object, "action", std::string_view(event.added ? "new" : "delete"));
  Put(object, "kind", event.kind->name);
  PutRef(object, TableRef{event.family, event.table});
  if (!event.name.empty()) Put(object, "name", event.name);
  Put(object, "handle", event.handle);
  if (event.count != 0) Put(object, "count", static_cast<double>(event.count));
  return object;
}

static Value ToJs(Env env, const ElementExtra& extra) {
  const Object object = Object::New(env);
  Put(object, "record", extra.record);
  if (!extra.object.empty()) Put(object, "object", extra.object);
  if (!extra.userdata.empty()) Put(object, "userdata", extra.userdata);
  return object;
}

static Value ToJs(Env env, const Fault& fault) {
  const Object object = Object::New(env);
  Put(object, "op", fault.op);
  if (fault.element) Put(object, "element", static_cast<double>(*fault.element));
  Put(object, "errno", static_cast<double>(fault.error));
  if (!fault.text.empty()) Put(object, "text", fault.text);
  return object;
}

Value ToJs(Env env, const Bytes& bytes) {
  Napi::Uint8Array array = Napi::Uint8Array::New(env, bytes.size());
  if (!bytes.empty()) std::memcpy(array.Data(), bytes.data(), bytes.size());
  return array;
}

Value ToJs(Env env, const std::vector<uint32_t>& numbers) {
  Napi::Uint32Array array = Napi::Uint32Array::New(env, numbers.size());
  std::copy(numbers.begin(), numbers.end(), array.Data());
  return array;
}

Value ToJs(Env env, const Verdict& verdict) {
  const Object object = Object::New(env);
  Put(object, "verdict", NameOf(kVerdicts, verdict.code));
  if (!verdict.chain.empty()) Put(object, "chain", verdict.chain);
  return object;
}

Value ToJs(Env env, const Expr& expr) {
  Object object = Object::New(env);
  if (expr.desc == nullptr) {
    Put(object, "type", std::string_view("opaque"));
    Put(object, "name", expr.name);
    Put(object, "data", expr.opaque);
    return object;
  }
  Put(object, "type", expr.name);
  for (const AttrValue& attr : expr.attrs) object.Set(attr.desc->js, AttrToJs(env, attr));
  if (!expr.extra.empty()) Put(object, "extra", expr.extra);
  return object;
}

Value ToJs(Env env, const TableInfo& info) {
  const Object object = Object::New(env);
  PutRef(object, info.ref);
  Put(object, "handle", info.handle);
  Put(object, "flags", info.flags);
  Put(object, "use", info.use);
  Put(object, "userdata", info.userdata);
  Put(object, "owner", info.owner);
  return object;
}

Value ToJs(Env env, const ChainInfo& info) {
  const Object object = Object::New(env);
  PutRef(object, info.ref);
  Put(object, "chain", info.chain);
  Put(object, "handle", info.handle);
  Put(object, "base", info.base);
  Put(object, "flags", info.flags);
  Put(object, "use", info.use);
  Put(object, "userdata", info.userdata);
  return object;
}

Value ToJs(Env env, const RuleInfo& info) {
  const Object object = Object::New(env);
  PutRef(object, info.ref);
  Put(object, "chain", info.chain);
  Put(object, "handle", info.handle);
  Put(object, "exprs", info.exprs);
  Put(object, "userdata", info.userdata);
  return object;
}

Value ToJs(Env env, const SetDump& dump) {
  const Object object = Object::New(env);
  const SetInfo& set = dump.info;
  PutRef(object, dump.ref);
  Put(object, "handle", dump.handle);
  Put(object, "count", dump.count);
  Put(object, "set", set.set);
  Put(object, "flags", set.flags);
  Put(object, "keyType", set.key_type);
  Put(object, "keyLen", set.key_len);
  Put(object, "dataType", set.data_type);
  Put(object, "dataLen", set.data_len);
  Put(object, "objType", set.obj_type);
  Put(object, "size", set.size);
  Put(object, "timeout", set.timeout);
  Put(object, "gcInterval", set.gc_interval);
  Put(object, "policy", set.policy);
  if (!set.field_lens.empty()) {
    Put(object, "fieldLens", std::vector<double>(set.field_lens.begin(), set.field_lens.end()));
  }
  if (!set.exprs.empty()) Put(object, "exprs", set.exprs);
  Put(object, "userdata", set.userdata);
  return object;
}

Value ToJs(Env env, const ObjectInfo& info) {
  const Object object = Object::New(env);
  Put(object, "kind", std::string_view("object"));
  Put(object, "object", info.object);
  Put(object, "objType", info.type);
  Put(object, "handle", info.handle);
  Put(object, "use", info.use);
  Put(object, "data", info.data);
  Put(object, "userdata", info.userdata);
  return object;
}

Value ToJs(Env env, const GenInfo& info) {
  const Object object = Object::New(env);
  Put(object, "id", info.id);
  Put(object, "pid", info.pid);
  Put(object, "name", info.name);
  return object;
}

Value ToJs(Env env, const InterfaceAddress& address) {
  const Object object = Object::New(env);
  Put(object, "family", std::string_view(address.family == AF_INET ? "ip" : "ip6"));
  Put(object, "address", address.address);
  Put(object, "prefixLength", address.prefix_length);
  Put(object, "interfaceIndex", address.interface_index);
  Put(object, "interfaceName", address.interface_name);
  return object;
}

Value ToJs(Env env, const LinkName& link) {
  const Object object = Object::New(env);
  Put(object, "index", link.index);
  Put(object, "name", link.name);
  return object;
}

Value ToJs(Env env, const TraceEvent& event) {
  const Object object = Object::New(env);
  Put(object, "id", event.id);
  Put(object, "type", event.type);
  Put(object, "nfproto", event.nfproto);
  PutRef(object, TableRef{event.family, event.table});
  Put(object, "chain", event.chain);
  Put(object, "rule", event.rule);
  Put(object, "verdict", event.verdict);
  Put(object, "policy", event.policy);
  Put(object, "mark", event.mark);
  Put(object, "iif", event.iif);
  Put(object, "oif", event.oif);
  Put(object, "network", event.network);
  Put(object, "transport", event.transport);
  Put(object, "ctId", event.ct_id);
  Put(object, "ctState", event.ct_state);
  return object;
}

Value ToJs(Env env, const CommitResult& result) {
  const Object object = Object::New(env);
  Put(object, "bytes", static_cast<double>(result.bytes));
  Put(object, "messages", static_cast<double>(result.messages));
  Put(object, "kernelNs", static_cast<double>(result.kernel_ns));
  Put(object, "encodeNs", static_cast<double>(result.encode_ns));
  return object;
}

Value ToJs(Env env, const ChangeBatch& batch) {
  Object object = Object::New(env);
  Put(object, "generation", batch.generation);
  Put(object, "portId", batch.port_id);
  if (batch.pid) {
    const Object process = Object::New(env);
    Put(process, "pid", *batch.pid);
    Put(process, "name", batch.process);
    object.Set("process", process);
  }
  Put(object, "events", batch.events);
  return object;
}

Value ElementsToJs(Env env, ElementCollector&& collector) {
  const ElementLayout layout = collector.layout();
  Object object = Object::New(env);
  Put(object, "count", static_cast<double>(collector.count()));
  Put(object, "keyLen", layout.key_len);
  if (layout.key_end) object.Set("keyEnd", true);
  Put(object, "dataLen", layout.data_len);
  if (layout.verdict_map) Put(object, "verdicts", collector.verdicts());
  if (layout.flags) object.Set("flags", true);
  if (layout.timeouts) object.Set("timeouts", true);
  if (layout.expirations) object.Set("expirations", true);
  if (layout.counters) object.Set("counters", true);
  if (!collector.extras().empty()) Put(object, "extras", collector.extras());
  auto bytes = std::make_unique<std::vector<uint8_t>>(collector.TakeBytes());
  std::vector<uint8_t>* raw = bytes.get();
  if (raw->empty()) {
    Put(object, "bytes", *raw);
    return object;
  }
  Napi::ArrayBuffer buffer = Napi::ArrayBuffer::New(
      env, raw->data(), raw->size(), [](Env, void*, std::vector<uint8_t>* owned) { delete owned; }, raw);
  static_cast<void>(bytes.release());
  object.Set("bytes", Napi::Uint8Array::New(env, raw->size(), buffer, 0));
  return object;
}

Napi::Error ErrorToJs(Env env, const Failure& failure, const std::string& action) {
  Napi::Error error = Napi::Error::New(env, action + ": " + failure.message());
  const Object object = error.Value();
  Put(object, "code", std::string_view(failure.code()));
  Put(object, "action", action);
  Put(object, "errno", static_cast<double>(failure.error()));
  Put(object, "faults", failure.faults());
  return error;
}

}  // namespace nftp

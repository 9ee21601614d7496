#include "js/writer.h"

#include <linux/netfilter/nf_tables.h>
#include <sys/socket.h>

#include <memory>

#include "codec/expr_table.h"
#include "codec/names.h"

namespace nftp {

namespace {

using Napi::Env;
using Napi::Object;
using Napi::Value;

Value Number(Env env, double number) { return Napi::Number::New(env, number); }
Value Big(Env env, uint64_t number) { return Napi::BigInt::New(env, number); }
Value Text(Env env, std::string_view text) { return Napi::String::New(env, text.data(), text.size()); }

void SetRef(Object object, const TableRef& ref) {
  object.Set("family", Text(object.Env(), NameOf(kFamilies, ref.family)));
  object.Set("table", Text(object.Env(), ref.table));
}

void SetUserdata(Object object, const std::optional<Bytes>& userdata) {
  if (userdata) object.Set("userdata", ToJs(object.Env(), *userdata));
}

void SetOptional(Object object, const char* field, const std::optional<uint32_t>& number) {
  if (number) object.Set(field, Number(object.Env(), *number));
}

Value ExprsToJs(Env env, const std::vector<Expr>& exprs);

Value AttrToJs(Env env, const AttrValue& attr) {
  switch (attr.desc->kind) {
    case AttrKind::U8:
    case AttrKind::U16:
    case AttrKind::U32:
    case AttrKind::U32Host:
      return Number(env, static_cast<double>(attr.number));
    case AttrKind::U64:
      return Big(env, attr.number);
    case AttrKind::String:
      return Text(env, attr.text);
    case AttrKind::Value:
    case AttrKind::Data:
      return attr.verdict ? ToJs(env, *attr.verdict) : ToJs(env, attr.bytes);
    case AttrKind::Exprs:
      return ExprsToJs(env, attr.exprs);
    case AttrKind::Numbers: {
      Napi::Array numbers = Napi::Array::New(env, attr.numbers.size());
      for (uint32_t i = 0; i < attr.numbers.size(); ++i) {
        numbers.Set(i, attr.numbers[i] ? Number(env, *attr.numbers[i]) : env.Undefined());
      }
      return numbers;
    }
    case AttrKind::Padding:
      break;
  }
  return env.Undefined();
}

Value ExprToJs(Env env, const Expr& expr) {
  Object object = Object::New(env);
  if (expr.desc == nullptr) {
    object.Set("type", Text(env, "opaque"));
    object.Set("name", Text(env, expr.name));
    object.Set("data", ToJs(env, expr.opaque));
    return object;
  }
  object.Set("type", Text(env, expr.name));
  for (const AttrValue& attr : expr.attrs) object.Set(attr.desc->js, AttrToJs(env, attr));
  if (expr.extra.empty()) return object;
  Napi::Array extra = Napi::Array::New(env, expr.extra.size());
  for (uint32_t i = 0; i < expr.extra.size(); ++i) {
    Object entry = Object::New(env);
    entry.Set("type", Number(env, expr.extra[i].type));
    entry.Set("bytes", ToJs(env, expr.extra[i].bytes));
    extra.Set(i, entry);
  }
  object.Set("extra", extra);
  return object;
}

Value ExprsToJs(Env env, const std::vector<Expr>& exprs) {
  Napi::Array array = Napi::Array::New(env, exprs.size());
  for (uint32_t i = 0; i < exprs.size(); ++i) {
    const Napi::HandleScope scope(env);
    array.Set(i, ExprToJs(env, exprs[i]));
  }
  return array;
}

Value BaseToJs(Env env, const BaseChain& base) {
  Object object = Object::New(env);
  object.Set("type", Text(env, base.type));
  object.Set("hook", Number(env, base.hook));
  object.Set("priority", Number(env, base.priority));
  if (base.policy) object.Set("policy", Text(env, *base.policy == NF_DROP ? "drop" : "accept"));
  if (!base.devices.empty()) {
    Napi::Array devices = Napi::Array::New(env, base.devices.size());
    for (uint32_t i = 0; i < base.devices.size(); ++i) devices.Set(i, Text(env, base.devices[i]));
    object.Set("devices", devices);
  }
  return object;
}

Value EventToJs(Env env, const ChangeEvent& event) {
  Object object = Object::New(env);
  object.Set("action", Text(env, event.added ? "new" : "delete"));
  object.Set("kind", Text(env, event.kind->name));
  SetRef(object, TableRef{event.family, event.table});
  if (!event.name.empty()) object.Set("name", Text(env, event.name));
  if (event.handle) object.Set("handle", Big(env, *event.handle));
  if (event.count != 0) object.Set("count", Number(env, static_cast<double>(event.count)));
  return object;
}

}  // namespace

Value ToJs(Env env, const Bytes& bytes) {
  Napi::Uint8Array array = Napi::Uint8Array::New(env, bytes.size());
  if (!bytes.empty()) std::memcpy(array.Data(), bytes.data(), bytes.size());
  return array;
}

Value ToJs(Env env, const Verdict& verdict) {
  Object object = Object::New(env);
  object.Set("verdict", Text(env, NameOf(kVerdicts, verdict.code)));
  if (!verdict.chain.empty()) object.Set("chain", Text(env, verdict.chain));
  return object;
}

Value ToJs(Env env, const std::string& text) { return Napi::String::New(env, text); }

Value ToJs(Env env, const TableInfo& info) {
  Object object = Object::New(env);
  SetRef(object, info.ref);
  object.Set("handle", Big(env, info.handle));
  object.Set("flags", Number(env, info.flags));
  object.Set("use", Number(env, info.use));
  SetUserdata(object, info.userdata);
  SetOptional(object, "owner", info.owner);
  return object;
}

Value ToJs(Env env, const ChainInfo& info) {
  Object object = Object::New(env);
  SetRef(object, info.ref);
  object.Set("chain", Text(env, info.chain));
  object.Set("handle", Big(env, info.handle));
  if (info.base) object.Set("base", BaseToJs(env, *info.base));
  object.Set("flags", Number(env, info.flags));
  object.Set("use", Number(env, info.use));
  SetUserdata(object, info.userdata);
  return object;
}

Value ToJs(Env env, const RuleInfo& info) {
  Object object = Object::New(env);
  SetRef(object, info.ref);
  object.Set("chain", Text(env, info.chain));
  object.Set("handle", Big(env, info.handle));
  object.Set("exprs", ExprsToJs(env, info.exprs));
  SetUserdata(object, info.userdata);
  return object;
}

Value ToJs(Env env, const SetDump& dump) {
  Object object = Object::New(env);
  const SetInfo& set = dump.info;
  SetRef(object, dump.ref);
  object.Set("handle", Big(env, dump.handle));
  SetOptional(object, "count", dump.count);
  object.Set("set", Text(env, set.set));
  object.Set("flags", Number(env, set.flags));
  object.Set("keyType", Number(env, set.key_type));
  object.Set("keyLen", Number(env, set.key_len));
  SetOptional(object, "dataType", set.data_type);
  SetOptional(object, "dataLen", set.data_len);
  SetOptional(object, "objType", set.obj_type);
  SetOptional(object, "size", set.size);
  if (set.timeout) object.Set("timeout", Big(env, *set.timeout));
  SetOptional(object, "gcInterval", set.gc_interval);
  SetOptional(object, "policy", set.policy);
  if (!set.field_lens.empty()) {
    Napi::Array fields = Napi::Array::New(env, set.field_lens.size());
    for (uint32_t i = 0; i < set.field_lens.size(); ++i) fields.Set(i, Number(env, set.field_lens[i]));
    object.Set("fieldLens", fields);
  }
  if (!set.exprs.empty()) object.Set("exprs", ExprsToJs(env, set.exprs));
  SetUserdata(object, set.userdata);
  return object;
}

Value ToJs(Env env, const ObjectInfo& info) {
  Object object = Object::New(env);
  object.Set("kind", Text(env, "object"));
  object.Set("object", Text(env, info.object));
  object.Set("objType", Number(env, info.type));
  object.Set("handle", Big(env, info.handle));
  object.Set("use", Number(env, info.use));
  object.Set("data", ExprToJs(env, info.data));
  SetUserdata(object, info.userdata);
  return object;
}

Value ToJs(Env env, const GenInfo& info) {
  Object object = Object::New(env);
  object.Set("id", Number(env, info.id));
  SetOptional(object, "pid", info.pid);
  if (info.name) object.Set("name", Text(env, *info.name));
  return object;
}

Value ToJs(Env env, const InterfaceAddress& address) {
  Object object = Object::New(env);
  object.Set("family", Text(env, address.family == AF_INET ? "ip" : "ip6"));
  object.Set("address", ToJs(env, address.address));
  object.Set("prefixLength", Number(env, address.prefix_length));
  object.Set("interfaceIndex", Number(env, address.interface_index));
  object.Set("interfaceName", Text(env, address.interface_name));
  return object;
}

Value ToJs(Env env, const LinkName& link) {
  Object object = Object::New(env);
  object.Set("index", Number(env, link.index));
  object.Set("name", Text(env, link.name));
  return object;
}

Value ToJs(Env env, const TraceEvent& event) {
  Object object = Object::New(env);
  object.Set("id", Number(env, event.id));
  object.Set("type", Number(env, event.type));
  object.Set("nfproto", Number(env, event.nfproto));
  object.Set("family", Text(env, NameOf(kFamilies, event.family)));
  object.Set("table", Text(env, event.table));
  object.Set("chain", Text(env, event.chain));
  if (event.rule) object.Set("rule", Big(env, *event.rule));
  if (event.verdict) object.Set("verdict", ToJs(env, *event.verdict));
  SetOptional(object, "policy", event.policy);
  SetOptional(object, "mark", event.mark);
  SetOptional(object, "iif", event.iif);
  SetOptional(object, "oif", event.oif);
  if (event.network) object.Set("network", ToJs(env, *event.network));
  if (event.transport) object.Set("transport", ToJs(env, *event.transport));
  SetOptional(object, "ctId", event.ct_id);
  SetOptional(object, "ctState", event.ct_state);
  return object;
}

Value ToJs(Env env, const CommitResult& result) {
  Object object = Object::New(env);
  object.Set("bytes", Number(env, static_cast<double>(result.bytes)));
  object.Set("messages", Number(env, static_cast<double>(result.messages)));
  object.Set("kernelNs", Number(env, static_cast<double>(result.kernel_ns)));
  object.Set("encodeNs", Number(env, static_cast<double>(result.encode_ns)));
  return object;
}

Value ToJs(Env env, const ChangeBatch& batch) {
  Object object = Object::New(env);
  object.Set("generation", Number(env, batch.generation));
  object.Set("portId", Number(env, batch.port_id));
  if (batch.pid) {
    Object process = Object::New(env);
    process.Set("pid", Number(env, *batch.pid));
    process.Set("name", Text(env, batch.process));
    object.Set("process", process);
  }
  Napi::Array events = Napi::Array::New(env, batch.events.size());
  for (uint32_t i = 0; i < batch.events.size(); ++i) {
    const Napi::HandleScope scope(env);
    events.Set(i, EventToJs(env, batch.events[i]));
  }
  object.Set("events", events);
  return object;
}

static Value ExtrasToJs(Env env, const std::vector<ElementExtra>& extras) {
  Napi::Array list = Napi::Array::New(env, extras.size());
  for (uint32_t i = 0; i < extras.size(); ++i) {
    const Napi::HandleScope scope(env);
    const ElementExtra& extra = extras[i];
    Object object = Object::New(env);
    object.Set("record", Number(env, extra.record));
    if (!extra.object.empty()) object.Set("object", Text(env, extra.object));
    if (!extra.userdata.empty()) object.Set("userdata", ToJs(env, extra.userdata));
    list.Set(i, object);
  }
  return list;
}

Value ElementsToJs(Env env, ElementCollector&& collector) {
  const ElementLayout layout = collector.layout();
  Object object = Object::New(env);
  object.Set("count", Number(env, static_cast<double>(collector.count())));
  object.Set("keyLen", Number(env, layout.key_len));
  if (layout.key_end) object.Set("keyEnd", Napi::Boolean::New(env, true));
  object.Set("dataLen", Number(env, layout.data_len));
  if (layout.verdict_map) object.Set("verdicts", ToJs(env, collector.verdicts()));
  if (layout.flags) object.Set("flags", Napi::Boolean::New(env, true));
  if (layout.timeouts) object.Set("timeouts", Napi::Boolean::New(env, true));
  if (layout.expirations) object.Set("expirations", Napi::Boolean::New(env, true));
  if (layout.counters) object.Set("counters", Napi::Boolean::New(env, true));
  if (!collector.extras().empty()) object.Set("extras", ExtrasToJs(env, collector.extras()));
  auto bytes = std::make_unique<std::vector<uint8_t>>(collector.TakeBytes());
  std::vector<uint8_t>* raw = bytes.get();
  if (raw->empty()) {
    object.Set("bytes", Napi::Uint8Array::New(env, 0));
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
  Object object = error.Value();
  object.Set("code", Text(env, failure.code()));
  object.Set("action", Text(env, action));
  object.Set("errno", Number(env, failure.error()));
  Napi::Array faults = Napi::Array::New(env, failure.faults().size());
  for (uint32_t i = 0; i < failure.faults().size(); ++i) {
    const Napi::HandleScope scope(env);
    const Fault& fault = failure.faults()[i];
    Object entry = Object::New(env);
    entry.Set("op", Number(env, fault.op));
    if (fault.element) entry.Set("element", Number(env, static_cast<double>(*fault.element)));
    entry.Set("errno", Number(env, fault.error));
    if (!fault.text.empty()) entry.Set("text", Text(env, fault.text));
    faults.Set(i, entry);
  }
  object.Set("faults", faults);
  return error;
}

}  // namespace nftp

// Converts tables of the older iptables from and to bytes.
#include <linux/netfilter/x_tables.h>

#include <algorithm>
#include <array>
#include <string>

#include "codec/legacy_removal.h"
#include "codec/legacy_table.h"
#include "exports.h"
#include "js/handle.h"
#include "js/legacy_values.h"
#include "js/reader.h"
#include "js/values.h"
#include "js/writer.h"

namespace nftp {

namespace {

std::array<uint32_t, NF_INET_NUMHOOKS> ReadOffsets(Napi::Env env, napi_value object, const char* field) {
  const Where where{std::string(field)};
  const napi_value list = Get(env, object, field);
  std::array<uint32_t, NF_INET_NUMHOOKS> offsets{};
  if (ReadArrayLength(env, list, NF_INET_NUMHOOKS, where) != offsets.size()) where.Fail("expected five numbers");
  for (uint32_t hook = 0; hook < offsets.size(); ++hook) {
    offsets[hook] = ReadU32(env, GetElement(env, list, hook), Where(where, hook));
  }
  return offsets;
}

Napi::Array OffsetsToJs(Napi::Env env, const std::array<uint32_t, NF_INET_NUMHOOKS>& offsets) {
  Napi::Array list = Napi::Array::New(env, offsets.size());
  for (uint32_t hook = 0; hook < offsets.size(); ++hook) list.Set(hook, Napi::Number::New(env, offsets[hook]));
  return list;
}

Napi::Value DecodeDrop(const Napi::CallbackInfo& info) {
  const uint8_t family = ReadOptionalFamily(info.Env(), info[0]);
  const ByteView view = ReadBytes(info.Env(), info[1], Where(std::string("bytes")));
  const uint32_t offset = ReadU32(info.Env(), info[2], Where(std::string("offset")));
  return Napi::Boolean::New(info.Env(), DecodeLegacyDrop(family, view.data, view.length, offset));
}

Napi::Value DecodeRules(const Napi::CallbackInfo& info) {
  const uint8_t family = ReadOptionalFamily(info.Env(), info[0]);
  const ByteView view = ReadBytes(info.Env(), info[1], Where(std::string("bytes")));
  const std::string chain = ReadText(info.Env(), info[2], XT_FUNCTION_MAXNAMELEN, Where(std::string("chain")));
  return Napi::Number::New(info.Env(), CountLegacyRules(family, view.data, view.length, chain));
}

Napi::Value DecodeChains(const Napi::CallbackInfo& info) {
  const uint8_t family = ReadOptionalFamily(info.Env(), info[0]);
  const ByteView view = ReadBytes(info.Env(), info[1], Where(std::string("bytes")));
  return ToJs(info.Env(), DecodeLegacyChains(family, view.data, view.length));
}

// rebuildLegacyTable(family, hooks, bytes, own)
Napi::Value Rebuild(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const uint8_t family = ReadOptionalFamily(env, info[0]);
  WantObject(env, info[1], Where(std::string("hooks")));
  const LegacyHooks hooks{ReadU32(env, Get(env, info[1], "valid"), Where(std::string("valid"))),
                          ReadOffsets(env, info[1], "entry"), ReadOffsets(env, info[1], "underflow")};
  const OwnChains own = ReadOwnChains(env, info[3]);
  const ByteView view = ReadBytes(env, info[2], Where(std::string("bytes")));
  const LegacyTable table(family, hooks, view.data, view.length);
  const LegacyRemoval removal = PlanRemoval(table, own);
  Napi::Object object = RemovalToJs(env, removal.chains, removal.jumps, removal.kept);
  if (removal.nothing()) return object;
  Napi::Object after = Napi::Object::New(env);
  after.Set("valid", Napi::Number::New(env, removal.hooks.valid));
  after.Set("entry", OffsetsToJs(env, removal.hooks.entry));
  after.Set("underflow", OffsetsToJs(env, removal.hooks.underflow));
  object.Set("hooks", after);
  Napi::Uint8Array bytes = Napi::Uint8Array::New(env, removal.length);
  WriteRemaining(table, removal, bytes.Data());
  object.Set("bytes", bytes);
  Napi::Uint32Array left = Napi::Uint32Array::New(env, removal.left.size());
  std::copy(removal.left.begin(), removal.left.end(), left.Data());
  object.Set("left", left);
  return object;
}

}  // namespace

void AddLegacyCodec(Napi::Env env, Napi::Object exports) {
  const auto add = [&](const char* name, Napi::Value (*function)(const Napi::CallbackInfo&)) {
    exports.Set(name, Napi::Function::New(env, function, name));
  };
  add("decodeLegacyChains", Guarded<DecodeChains>);
  add("decodeLegacyRules", Guarded<DecodeRules>);
  add("decodeLegacyDrop", Guarded<DecodeDrop>);
  add("rebuildLegacyTable", Guarded<Rebuild>);
}

}  // namespace nftp

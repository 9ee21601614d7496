// Reads tables of the older iptables from bytes.
#include <linux/netfilter/x_tables.h>

#include <string>

#include "codec/legacy_table.h"
#include "exports.h"
#include "js/handle.h"
#include "js/reader.h"
#include "js/values.h"

namespace nftp {

namespace {

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

}  // namespace

void AddLegacyCodec(Napi::Env env, Napi::Object exports) {
  const auto add = [&](const char* name, Napi::Value (*function)(const Napi::CallbackInfo&)) {
    exports.Set(name, Napi::Function::New(env, function, name));
  };
  add("decodeLegacyChains", Guarded<DecodeChains>);
  add("decodeLegacyRules", Guarded<DecodeRules>);
  add("decodeLegacyDrop", Guarded<DecodeDrop>);
}

}  // namespace nftp

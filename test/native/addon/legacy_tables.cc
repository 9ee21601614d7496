// Reads tables of the older iptables from bytes.
#include <string>

#include "codec/legacy_table.h"
#include "js/exports.h"
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

Napi::Value DecodeChains(const Napi::CallbackInfo& info) {
  const uint8_t family = ReadOptionalFamily(info.Env(), info[0]);
  const ByteView view = ReadBytes(info.Env(), info[1], Where(std::string("bytes")));
  const LegacyChains chains = DecodeLegacyChains(family, view.data, view.length);
  const Napi::Object object = Napi::Object::New(info.Env());
  Put(object, "names", chains.names);
  Put(object, "rules", chains.rules);
  return object;
}

}  // namespace

void AddLegacyCodec(Napi::Object exports) {
  Export(exports, {{"decodeLegacyChains", Guarded<DecodeChains>},

                   {"decodeLegacyDrop", Guarded<DecodeDrop>}});
}

}  // namespace nftp

// What the test addon exports, by the part of the addon that it looks into. test/native/test-addon.ts has the types.
#pragma once

#include <napi.h>

namespace nftp {

void AddCodec(Napi::Env env, Napi::Object exports);
void AddConntrackCodec(Napi::Env env, Napi::Object exports);
void AddLegacyCodec(Napi::Env env, Napi::Object exports);

}  // namespace nftp

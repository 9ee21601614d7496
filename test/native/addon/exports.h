// Exports of the test addon, by the part of the addon that they test. test/native/test-addon.ts has the types.
#pragma once

#include <napi.h>

namespace nftp {

void AddCodec(Napi::Env env, Napi::Object exports);
void AddConntrackCodec(Napi::Env env, Napi::Object exports);
void AddLegacyCodec(Napi::Env env, Napi::Object exports);

}  // namespace nftp

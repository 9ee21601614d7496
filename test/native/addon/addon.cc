// An addon for tests alone: the pure functions of the shipped addon, from bytes and to bytes.
#include <napi.h>

#include "exports.h"

static Napi::Object InitAddon(Napi::Env env, Napi::Object exports) {
  nftp::AddCodec(env, exports);
  nftp::AddConntrackCodec(env, exports);
  nftp::AddLegacyCodec(env, exports);
  return exports;
}
NODE_API_MODULE(nft_proxier_test, InitAddon)

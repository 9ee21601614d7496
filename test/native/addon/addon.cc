// An addon for tests alone: the pure functions of the shipped addon, from bytes and to bytes.
#include <napi.h>

namespace nftp {

// test/native/test-addon.ts has the types.
void AddCodec(Napi::Object exports);
void AddConntrackCodec(Napi::Object exports);
void AddLegacyCodec(Napi::Object exports);

}  // namespace nftp

static Napi::Object InitAddon(Napi::Env, Napi::Object exports) {
  nftp::AddCodec(exports);
  nftp::AddConntrackCodec(exports);
  nftp::AddLegacyCodec(exports);
  return exports;
}
NODE_API_MODULE(nft_proxier_test, InitAddon)

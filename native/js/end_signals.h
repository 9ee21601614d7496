// The addon's function for the signals that ask a program to end.
#pragma once

#include <napi.h>

namespace nftp {

// Adds it to the addon's exports; src/netlink/nft-addon.ts documents the result.
void AddEndSignals(Napi::Env env, Napi::Object exports);

}  // namespace nftp

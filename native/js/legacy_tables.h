// The addon's functions for the tables of the older iptables. Main thread only.
#pragma once

#include <napi.h>

namespace nftp {

// Adds them to the addon's exports; src/netlink/nft-addon.ts documents the arguments and results.
void AddLegacyTables(Napi::Env env, Napi::Object exports);

}  // namespace nftp

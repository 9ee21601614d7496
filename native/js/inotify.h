// The addon's functions for events of directories, inotify(7).
#pragma once

#include <napi.h>

namespace nftp {

// Adds them to the addon's exports; src/netlink/nft-addon.ts documents them.
void AddInotify(Napi::Env env, Napi::Object exports);

}  // namespace nftp

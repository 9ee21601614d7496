// The addon's functions for connection tracking. Main thread only.
#pragma once

#include <napi.h>

#include "conntrack/record.h"

namespace nftp {

// Adds them to the addon's exports. Entries cross as bytes (conntrack/record.h); src/netlink/conntrack-addon.ts says
// what each function takes and gives.
void AddConntrack(Napi::Env env, Napi::Object exports);

// Blocks (conntrack/pack.h) of some records each: {stride, bytes}.
Napi::Array RecordsToJs(Napi::Env env, const ConntrackRecords& records);

}  // namespace nftp

// The addon's functions for connection tracking. Main thread only.
#pragma once

#include <napi.h>

#include "conntrack/record.h"

namespace nftp {

// Adds them to the addon's exports. Entries cross as bytes (conntrack/record.h). src/netlink/conntrack-addon.ts
// documents the arguments and results.
void AddConntrack(Napi::Env env, Napi::Object exports);

// Returns blocks (conntrack/pack.h) of records: {stride, bytes}.
Napi::Array RecordsToJs(Napi::Env env, const ConntrackRecords& records);

}  // namespace nftp

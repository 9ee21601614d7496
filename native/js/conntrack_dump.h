// Dumps of connection tracking, read on a separate thread (conntrack/reader.h). Main thread only.
#pragma once

#include <napi.h>

namespace nftp {

// Adds conntrackDump and conntrackRead to the addon's exports.
void AddConntrackDumps(Napi::Env env, Napi::Object exports);

}  // namespace nftp

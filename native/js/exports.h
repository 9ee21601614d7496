// The addon's functions, by subject. src/nft/kernel/nft-addon.ts and conntrack-addon.ts document them. Main thread
// only.
#pragma once

#include <napi.h>

#include <initializer_list>

#include "js/handle.h"

namespace nftp {

struct Exported {
  const char* name;
  Body function;
};

// Adds functions to the addon's exports. Their failures become JS errors.
inline void Export(Napi::Object exports, std::initializer_list<Exported> functions) {
  for (const auto& [name, function] : functions) exports.Set(name, Napi::Function::New(exports.Env(), function, name));
}

// Connection tracking. Entries cross as bytes (conntrack/record.h).
void AddConntrack(Napi::Object exports);
// Dumps of connection tracking, read on a separate thread (conntrack/reader.h).
void AddConntrackDumps(Napi::Object exports);
// The signals that ask a program to end.
void AddEndSignals(Napi::Object exports);
// Events of directories, inotify(7).
void AddInotify(Napi::Object exports);
// The tables of the older iptables.
void AddLegacyTables(Napi::Object exports);
// The memory of a startup snapshot.
void AddStartupSnapshot(Napi::Object exports);

}  // namespace nftp

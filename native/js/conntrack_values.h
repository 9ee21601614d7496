// JS values of connection tracking: handles of tables, filters, records. Main thread only.
#pragma once

#include <napi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "conntrack/filter.h"
#include "conntrack/pack.h"
#include "conntrack/record.h"
#include "conntrack/table.h"

namespace nftp {

constexpr napi_type_tag kConntrackTableTag = {0x6e66742d70726f78, 0x636f6e6e74726163};

using ConntrackTablePtr = std::shared_ptr<ConntrackTable>;

// Returns the table of the handle that is the first argument. Throws Failure.
ConntrackTablePtr TableOf(const Napi::CallbackInfo& info);
// Throws Failure.
ConntrackFilter ReadFilter(Napi::Env env, napi_value value);

// Reads records of `stride` bytes each and fills the rest with zeros. Throws Failure.
ConntrackRecords ReadRecords(Napi::Env env, napi_value value, size_t stride, const char* what);

// Packs records into blocks (conntrack/pack.h).
std::vector<ConntrackBlock> Packed(const ConntrackRecords& records);

// {stride, bytes}
Napi::Value ToJs(Napi::Env env, const ConntrackBlock& block);
Napi::Value ToJs(Napi::Env env, const ConntrackTotals& totals);
Napi::Value ToJs(Napi::Env env, const ConntrackCounts& counts);
Napi::Value ToJs(Napi::Env env, const ConntrackDeletion& deletion);

}  // namespace nftp

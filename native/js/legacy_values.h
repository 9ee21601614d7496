// JS values about the tables of the older iptables. Main thread only.
#pragma once

#include <napi.h>

#include <cstdint>
#include <vector>

#include "codec/legacy_removal.h"

namespace nftp {

// Throws Failure.
OwnChains ReadOwnChains(Napi::Env env, napi_value value);
// {chains, jumps, kept}
Napi::Object RemovalToJs(Napi::Env env, uint32_t chains, uint32_t jumps, const std::vector<KeptChain>& kept);

}  // namespace nftp

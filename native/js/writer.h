// Converts structs to JS values in the shapes of src/netlink/kernel.ts. Main thread only.
#pragma once

#include <napi.h>

#include <string>
#include <vector>

#include "codec/element_codec.h"
#include "codec/failure.h"
#include "codec/model.h"
#include "codec/trace_decoder.h"
#include "socket/connection.h"
#include "socket/monitor.h"

namespace nftp {

Napi::Value ToJs(Napi::Env env, const TableInfo& info);
Napi::Value ToJs(Napi::Env env, const ChainInfo& info);
Napi::Value ToJs(Napi::Env env, const RuleInfo& info);
Napi::Value ToJs(Napi::Env env, const SetDump& dump);
Napi::Value ToJs(Napi::Env env, const ObjectInfo& info);
Napi::Value ToJs(Napi::Env env, const GenInfo& info);
Napi::Value ToJs(Napi::Env env, const InterfaceAddress& address);
Napi::Value ToJs(Napi::Env env, const CommitResult& result);
Napi::Value ToJs(Napi::Env env, const ChangeBatch& batch);
Napi::Value ToJs(Napi::Env env, const LinkName& link);
Napi::Value ToJs(Napi::Env env, const TraceEvent& event);
Napi::Value ToJs(Napi::Env env, const Bytes& bytes);
Napi::Value ToJs(Napi::Env env, const Verdict& verdict);
Napi::Value ToJs(Napi::Env env, const std::string& text);
// Returns an ElementBatch. The bytes are moved, not copied.
Napi::Value ElementsToJs(Napi::Env env, ElementCollector&& collector);

// Returns an Error with code, action, errno and faults. nft-kernel.ts turns it into a KernelError.
Napi::Error ErrorToJs(Napi::Env env, const Failure& failure, const std::string& action);

template <typename T>
Napi::Value ToJs(Napi::Env env, const std::vector<T>& list) {
  Napi::Array array = Napi::Array::New(env, list.size());
  for (uint32_t i = 0; i < list.size(); ++i) {
    const Napi::HandleScope scope(env);
    array.Set(i, ToJs(env, list[i]));
  }
  return array;
}

}  // namespace nftp

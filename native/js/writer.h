// Converts structs to JS values in the shapes of src/nft/kernel/kernel.ts. Main thread only.
#pragma once

#include <napi.h>

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "codec/element_codec.h"
#include "codec/failure.h"
#include "codec/model.h"
#include "codec/trace_decoder.h"
#include "socket/connection.h"
#include "socket/monitor.h"

namespace nftp {

inline Napi::Value ToJs(Napi::Env env, double number) { return Napi::Number::New(env, number); }
inline Napi::Value ToJs(Napi::Env env, uint32_t number) { return Napi::Number::New(env, number); }
inline Napi::Value ToJs(Napi::Env env, uint64_t number) { return Napi::BigInt::New(env, number); }
inline Napi::Value ToJs(Napi::Env env, std::string_view text) {
  return Napi::String::New(env, text.data(), text.size());
}
// The result of work that has none but its completion.
inline Napi::Value ToJs(Napi::Env env, std::monostate) { return env.Undefined(); }
// Uint8Array and Uint32Array
Napi::Value ToJs(Napi::Env env, const Bytes& bytes);
Napi::Value ToJs(Napi::Env env, const std::vector<uint32_t>& numbers);
Napi::Value ToJs(Napi::Env env, const Verdict& verdict);
Napi::Value ToJs(Napi::Env env, const Expr& expr);
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

template <typename T>
Napi::Value ToJs(Napi::Env env, const std::vector<T>& list);
// undefined if absent
template <typename T>
Napi::Value ToJs(Napi::Env env, const std::optional<T>& value) {
  return value ? ToJs(env, *value) : env.Undefined();
}
template <typename T>
Napi::Value ToJs(Napi::Env env, const std::vector<T>& list) {
  Napi::Array array = Napi::Array::New(env, list.size());
  for (uint32_t i = 0; i < list.size(); ++i) {
    const Napi::HandleScope scope(env);
    array.Set(i, ToJs(env, list[i]));
  }
  return array;
}

// Sets a property; none for an absent value.
template <typename T>
void Put(Napi::Object object, const char* field, const T& value) {
  object.Set(field, ToJs(object.Env(), value));
}
template <typename T>
void Put(Napi::Object object, const char* field, const std::optional<T>& value) {
  if (value) Put(object, field, *value);
}

// Returns an ElementBatch. The bytes are moved, not copied.
Napi::Value ElementsToJs(Napi::Env env, ElementCollector&& collector);

// Returns an Error with code, action, errno and faults. nft-kernel.ts turns it into a KernelError.
Napi::Error ErrorToJs(Napi::Env env, const Failure& failure, const std::string& action);

}  // namespace nftp

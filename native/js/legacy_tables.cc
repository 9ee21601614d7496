#include "js/legacy_tables.h"

#include <linux/netfilter/x_tables.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "codec/failure.h"
#include "js/async_task.h"
#include "js/handle.h"
#include "js/reader.h"
#include "js/values.h"
#include "js/writer.h"
#include "socket/legacy_tables.h"

namespace nftp {

namespace {

// More bytes than any table has.
constexpr double kMostBytes = 1LL << 53;

uint64_t ReadMostBytes(Napi::Env env, napi_value value) {
  return static_cast<uint64_t>(ReadInteger(env, value, 0, kMostBytes, Where(std::string("mostBytes"))));
}

Napi::Value Layout(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  const TableRef table = ReadTableRef(info.Env(), info[1]);
  using Words = std::vector<uint32_t>;
  return AsyncTask<Words>::Run(
      info.Env(), "read iptables table", [connection, table] { return LegacyLayout(connection->netns(), table); },
      [](Napi::Env env, Words&& words) -> Napi::Value {
        Napi::Uint32Array layout = Napi::Uint32Array::New(env, words.size());
        std::copy(words.begin(), words.end(), layout.Data());
        return layout;
      });
}

Napi::Value Chains(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  const TableRef table = ReadTableRef(info.Env(), info[1]);
  const uint64_t most_bytes = ReadMostBytes(info.Env(), info[2]);
  return ListTask<std::string>(info.Env(), "read iptables table", [connection, table, most_bytes] {
    return LegacyChains(connection->netns(), table, most_bytes);
  });
}

Napi::Value Rules(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  const TableRef table = ReadTableRef(info.Env(), info[1]);
  const std::string chain = ReadText(info.Env(), info[2], XT_FUNCTION_MAXNAMELEN, Where(std::string("chain")));
  const uint64_t most_bytes = ReadMostBytes(info.Env(), info[3]);
  return AsyncTask<uint32_t>::Run(
      info.Env(), "read iptables table",
      [connection, table, chain, most_bytes] { return LegacyRules(connection->netns(), table, chain, most_bytes); },
      [](Napi::Env env, uint32_t&& rules) -> Napi::Value { return Napi::Number::New(env, rules); });
}

Napi::Value ForwardDrops(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  const TableRef table = ReadTableRef(info.Env(), info[1]);
  const uint64_t most_bytes = ReadMostBytes(info.Env(), info[2]);
  return AsyncTask<bool>::Run(
      info.Env(), "read iptables table",
      [connection, table, most_bytes] { return LegacyForwardDrops(connection->netns(), table, most_bytes); },
      [](Napi::Env env, bool&& drops) -> Napi::Value { return Napi::Boolean::New(env, drops); });
}

}  // namespace

void AddLegacyTables(Napi::Env env, Napi::Object exports) {
  const auto add = [&](const char* name, Napi::Value (*function)(const Napi::CallbackInfo&)) {
    exports.Set(name, Napi::Function::New(env, function, name));
  };
  add("legacyLayout", Guarded<Layout>);
  add("legacyChains", Guarded<Chains>);
  add("legacyRules", Guarded<Rules>);
  add("legacyForwardDrops", Guarded<ForwardDrops>);
}

}  // namespace nftp

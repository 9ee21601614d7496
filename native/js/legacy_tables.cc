#include "js/legacy_tables.h"

#include <linux/limits.h>
#include <linux/netfilter/x_tables.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "codec/failure.h"
#include "codec/legacy_removal.h"
#include "js/async_task.h"
#include "js/handle.h"
#include "js/legacy_values.h"
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

// removeLegacyChains(connection, table, own, {lockFile, mostBytes})
Napi::Value RemoveChains(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const ConnectionPtr connection = ConnectionOf(info);
  const TableRef table = ReadTableRef(env, info[1]);
  const OwnChains own = ReadOwnChains(env, info[2]);
  WantObject(env, info[3], Where(std::string("options")));
  const Where lock_file{std::string("lockFile")};
  const LegacyRemovalOptions options{ReadText(env, Get(env, info[3], "lockFile"), PATH_MAX, lock_file),
                                     ReadMostBytes(env, Get(env, info[3], "mostBytes"))};
  return AsyncTask<LegacyOutcome>::Run(
      env, "replace iptables table",
      [connection, table, own, options] { return RemoveLegacyChains(connection->netns(), table, own, options); },
      [](Napi::Env e, LegacyOutcome&& outcome) -> Napi::Value {
        Napi::Object object = RemovalToJs(e, outcome.chains, outcome.jumps, outcome.kept);
        object.Set("countersKept", Napi::Boolean::New(e, outcome.counters_kept));
        if (!outcome.unlocked.empty()) object.Set("unlocked", outcome.unlocked);
        return object;
      });
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
  add("removeLegacyChains", Guarded<RemoveChains>);
}

}  // namespace nftp

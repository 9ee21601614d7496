#include "js/legacy_tables.h"

#include <linux/limits.h>
#include <linux/netfilter/x_tables.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "codec/failure.h"
#include "codec/legacy_removal.h"
#include "codec/legacy_table.h"
#include "js/async_task.h"
#include "js/handle.h"
#include "js/reader.h"
#include "js/values.h"
#include "js/writer.h"
#include "socket/legacy_tables.h"

namespace nftp {

namespace {

// More than there is in any table.
constexpr double kMostBytes = 1LL << 53;

uint64_t ReadMostBytes(Napi::Env env, napi_value value) {
  return static_cast<uint64_t>(ReadInteger(env, value, 0, kMostBytes, Where(std::string("mostBytes"))));
}

std::vector<std::string> RequiredNames(Napi::Env env, napi_value object, const char* field) {
  std::optional<std::vector<std::string>> names = ReadOptionalNames(env, Get(env, object, field), field);
  if (!names) throw Failure::Invalid(std::string(field) + ": expected an array");
  return std::move(*names);
}

OwnChains ReadOwnChains(Napi::Env env, napi_value value) {
  WantObject(env, value, Where(std::string("own")));
  return {RequiredNames(env, value, "entries"), RequiredNames(env, value, "others"),
          RequiredNames(env, value, "prefixes")};
}

std::array<uint32_t, NF_INET_NUMHOOKS> ReadOffsets(Napi::Env env, napi_value object, const char* field) {
  const Where where{std::string(field)};
  const napi_value list = Get(env, object, field);
  std::array<uint32_t, NF_INET_NUMHOOKS> offsets{};
  if (ReadArrayLength(env, list, NF_INET_NUMHOOKS, where) != offsets.size()) where.Fail("expected five numbers");
  for (uint32_t hook = 0; hook < offsets.size(); ++hook) {
    offsets[hook] = ReadU32(env, GetElement(env, list, hook), Where(where, hook));
  }
  return offsets;
}

Napi::Array OffsetsToJs(Napi::Env env, const std::array<uint32_t, NF_INET_NUMHOOKS>& offsets) {
  Napi::Array list = Napi::Array::New(env, offsets.size());
  for (uint32_t hook = 0; hook < offsets.size(); ++hook) list.Set(hook, Napi::Number::New(env, offsets[hook]));
  return list;
}

template <typename Result>
Napi::Object ResultToJs(Napi::Env env, const Result& result) {
  Napi::Array kept = Napi::Array::New(env, result.kept.size());
  for (uint32_t i = 0; i < result.kept.size(); ++i) {
    Napi::Object chain = Napi::Object::New(env);
    chain.Set("chain", result.kept[i].chain);
    chain.Set("user", result.kept[i].user);
    kept.Set(i, chain);
  }
  Napi::Object object = Napi::Object::New(env);
  object.Set("chains", Napi::Number::New(env, result.chains));
  object.Set("jumps", Napi::Number::New(env, result.jumps));
  object.Set("kept", kept);
  return object;
}

// legacyLayout(connection, table)
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

// legacyChains(connection, table, mostBytes)
Napi::Value Chains(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  const TableRef table = ReadTableRef(info.Env(), info[1]);
  const uint64_t most_bytes = ReadMostBytes(info.Env(), info[2]);
  return ListTask<std::string>(info.Env(), "read iptables table", [connection, table, most_bytes] {
    return LegacyChains(connection->netns(), table, most_bytes);
  });
}

// legacyRules(connection, table, chain, mostBytes)
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

// legacyForwardDrops(connection, table, mostBytes)
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
        Napi::Object object = ResultToJs(e, outcome);
        object.Set("countersKept", Napi::Boolean::New(e, outcome.counters_kept));
        if (!outcome.unlocked.empty()) object.Set("unlocked", outcome.unlocked);
        return object;
      });
}

// decodeLegacyDrop(family, bytes, offset)
Napi::Value DecodeDrop(const Napi::CallbackInfo& info) {
  const uint8_t family = ReadOptionalFamily(info.Env(), info[0]);
  const ByteView view = ReadBytes(info.Env(), info[1], Where(std::string("bytes")));
  const uint32_t offset = ReadU32(info.Env(), info[2], Where(std::string("offset")));
  return Napi::Boolean::New(info.Env(), DecodeLegacyDrop(family, view.data, view.length, offset));
}

// decodeLegacyRules(family, bytes, chain)
Napi::Value DecodeRules(const Napi::CallbackInfo& info) {
  const uint8_t family = ReadOptionalFamily(info.Env(), info[0]);
  const ByteView view = ReadBytes(info.Env(), info[1], Where(std::string("bytes")));
  const std::string chain = ReadText(info.Env(), info[2], XT_FUNCTION_MAXNAMELEN, Where(std::string("chain")));
  return Napi::Number::New(info.Env(), CountLegacyRules(family, view.data, view.length, chain));
}

// decodeLegacyChains(family, bytes)
Napi::Value DecodeChains(const Napi::CallbackInfo& info) {
  const uint8_t family = ReadOptionalFamily(info.Env(), info[0]);
  const ByteView view = ReadBytes(info.Env(), info[1], Where(std::string("bytes")));
  return ToJs(info.Env(), DecodeLegacyChains(family, view.data, view.length));
}

// rebuildLegacyTable(family, hooks, bytes, own)
Napi::Value Rebuild(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const uint8_t family = ReadOptionalFamily(env, info[0]);
  WantObject(env, info[1], Where(std::string("hooks")));
  const LegacyHooks hooks{ReadU32(env, Get(env, info[1], "valid"), Where(std::string("valid"))),
                          ReadOffsets(env, info[1], "entry"), ReadOffsets(env, info[1], "underflow")};
  const OwnChains own = ReadOwnChains(env, info[3]);
  const ByteView view = ReadBytes(env, info[2], Where(std::string("bytes")));
  const LegacyTable table(family, hooks, view.data, view.length);
  const LegacyRemoval removal = PlanRemoval(table, own);
  Napi::Object object = ResultToJs(env, removal);
  if (removal.nothing()) return object;
  Napi::Object after = Napi::Object::New(env);
  after.Set("valid", Napi::Number::New(env, removal.hooks.valid));
  after.Set("entry", OffsetsToJs(env, removal.hooks.entry));
  after.Set("underflow", OffsetsToJs(env, removal.hooks.underflow));
  object.Set("hooks", after);
  Napi::Uint8Array bytes = Napi::Uint8Array::New(env, removal.length);
  WriteRemaining(table, removal, bytes.Data());
  object.Set("bytes", bytes);
  Napi::Uint32Array left = Napi::Uint32Array::New(env, removal.left.size());
  std::copy(removal.left.begin(), removal.left.end(), left.Data());
  object.Set("left", left);
  return object;
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
  add("decodeLegacyChains", Guarded<DecodeChains>);
  add("decodeLegacyRules", Guarded<DecodeRules>);
  add("decodeLegacyDrop", Guarded<DecodeDrop>);
  add("rebuildLegacyTable", Guarded<Rebuild>);
}

}  // namespace nftp

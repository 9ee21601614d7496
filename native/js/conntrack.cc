#include "js/conntrack.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "conntrack/filter.h"
#include "conntrack/monitor.h"
#include "conntrack/pack.h"
#include "conntrack/table.h"
#include "js/async_task.h"
#include "js/conntrack_dump.h"
#include "js/conntrack_values.h"
#include "js/handle.h"
#include "js/monitor.h"
#include "js/reader.h"
#include "js/values.h"

namespace nftp {

namespace {

ConntrackRecord ReadRecord(Napi::Env env, napi_value value, size_t stride, const char* what) {
  const ConntrackRecords records = ReadRecords(env, value, stride, what);
  if (records.size() != 1) throw Failure::Invalid(std::string(what) + ": expected one record");
  return records.front();
}

Napi::Value Open(const Napi::CallbackInfo& info) {
  const ConnectionOptions options = ReadConnectionOptions(info.Env(), info[0]);
  return AsyncTask<ConntrackTablePtr>::Run(
      info.Env(), "open", [options] { return std::make_shared<ConntrackTable>(options); },
      [](Napi::Env env, ConntrackTablePtr&& table) { return Wrap(env, std::move(table), kConntrackTableTag); });
}

// Releases the handle's share at once; running calls keep theirs until they end.
Napi::Value Close(const Napi::CallbackInfo& info) {
  static_cast<void>(TableOf(info));
  ShareOf<ConntrackTable>(info.Env(), info[0], kConntrackTableTag, "conntrack table").reset();
  return info.Env().Undefined();
}

Napi::Value Totals(const Napi::CallbackInfo& info) {
  return AsyncTask<ConntrackTotals>::Run(
      info.Env(), "conntrack statistics", [table = TableOf(info)] { return table->Totals(); },
      [](Napi::Env env, ConntrackTotals&& totals) -> Napi::Value {
        Napi::Object object = Napi::Object::New(env);
        object.Set("entries", Number(env, totals.entries));
        if (totals.max) object.Set("max", Number(env, *totals.max));
        return object;
      });
}

Napi::Value Counts(const Napi::CallbackInfo& info) {
  return AsyncTask<ConntrackCounts>::Run(
      info.Env(), "conntrack statistics", [table = TableOf(info)] { return table->Counts(); },
      [](Napi::Env env, ConntrackCounts&& counts) -> Napi::Value {
        Napi::Object object = Napi::Object::New(env);
        object.Set("found", Number(env, counts.found));
        object.Set("invalid", Number(env, counts.invalid));
        object.Set("insert", Number(env, counts.insert));
        object.Set("insertFailed", Number(env, counts.insert_failed));
        object.Set("drop", Number(env, counts.drop));
        object.Set("earlyDrop", Number(env, counts.early_drop));
        object.Set("error", Number(env, counts.error));
        return object;
      });
}

Napi::Value Lookup(const Napi::CallbackInfo& info) {
  const ConntrackRecord key = ReadRecord(info.Env(), info[1], kConntrackKeyBytes, "key");
  return AsyncTask<std::optional<ConntrackRecord>>::Run(
      info.Env(), "lookup", [table = TableOf(info), key] { return table->Lookup(key); },
      [](Napi::Env env, std::optional<ConntrackRecord>&& found) -> Napi::Value {
        if (!found) return env.Undefined();
        ConntrackPacker packer;
        packer.Add(*found);
        return BlockToJs(env, packer.Take().front());
      });
}

// Runs work that has no result but its completion.
Napi::Value Run(Napi::Env env, const char* action, std::function<void()> work) {
  return AsyncTask<bool>::Run(
      env, action,
      [work = std::move(work)] {
        work();
        return true;
      },
      [](Napi::Env e, bool&&) { return e.Undefined(); });
}

Napi::Value Create(const Napi::CallbackInfo& info) {
  const ConntrackRecord entry = ReadRecord(info.Env(), info[1], sizeof(ConntrackRecord), "entry");
  return Run(info.Env(), "create", [table = TableOf(info), entry] { table->Create(entry); });
}

Napi::Value Change(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const ConntrackRecord key = ReadRecord(env, info[1], kConntrackKeyBytes, "key");
  const Where where("change: ");
  WantObject(env, info[2], where);
  ConntrackChange change;
  change.timeout = OptionalU32(env, info[2], "timeout", where);
  change.mark = OptionalU32(env, info[2], "mark", where);
  change.mark_mask = OptionalU32(env, info[2], "markMask", where).value_or(UINT32_MAX);
  return Run(env, "update", [table = TableOf(info), key, change] { table->Change(key, change); });
}

Napi::Value DeletionToJs(Napi::Env env, ConntrackDeletion&& outcome) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("deleted", Number(env, outcome.deleted));
  object.Set("absent", Number(env, outcome.absent));
  object.Set("interrupted", Napi::Boolean::New(env, outcome.interrupted));
  return object;
}

Napi::Value ListDeletionToJs(Napi::Env env, ConntrackDeletion&& outcome) {
  Napi::Uint32Array absent_at = Napi::Uint32Array::New(env, outcome.absent_at.size());
  std::copy(outcome.absent_at.begin(), outcome.absent_at.end(), absent_at.Data());
  Napi::Value object = DeletionToJs(env, std::move(outcome));
  object.As<Napi::Object>().Set("absentAt", absent_at);
  return object;
}

Napi::Value Delete(const Napi::CallbackInfo& info) {
  auto keys = std::make_shared<const ConntrackRecords>(ReadRecords(info.Env(), info[1], kConntrackKeyBytes, "keys"));
  return AsyncTask<ConntrackDeletion>::Run(
      info.Env(), "delete", [table = TableOf(info), keys] { return table->Delete(*keys); }, ListDeletionToJs);
}

Napi::Value DeleteMatching(const Napi::CallbackInfo& info) {
  return AsyncTask<ConntrackDeletion>::Run(
      info.Env(), "delete matching",
      [table = TableOf(info), filter = ReadFilter(info.Env(), info[1])] { return table->DeleteMatching(filter); },
      DeletionToJs);
}

Napi::Value Watch(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const ConntrackTablePtr table = TableOf(info);
  const Where where("options: ");
  WantObject(env, info[1], where);
  ConntrackMonitorOptions options;
  options.created = OptionalBool(env, info[1], "created", where);
  options.destroyed = OptionalBool(env, info[1], "destroyed", where);
  options.receive_buffer = table->options().receive_buffer;
  return MonitorTask<ConntrackMonitor>(
      env, info[2], [table, options] { return std::make_shared<ConntrackMonitor>(table->netns(), options); });
}

}  // namespace

void AddConntrack(Napi::Env env, Napi::Object exports) {
  const auto add = [&](const char* name, Napi::Value (*function)(const Napi::CallbackInfo&)) {
    exports.Set(name, Napi::Function::New(env, function, name));
  };
  add("conntrackOpen", Guarded<Open>);
  add("conntrackClose", Guarded<Close>);
  add("conntrackTotals", Guarded<Totals>);
  add("conntrackCounts", Guarded<Counts>);
  add("conntrackLookup", Guarded<Lookup>);
  add("conntrackCreate", Guarded<Create>);
  add("conntrackChange", Guarded<Change>);
  add("conntrackDelete", Guarded<Delete>);
  add("conntrackDeleteMatching", Guarded<DeleteMatching>);
  add("conntrackWatch", Guarded<Watch>);
  AddConntrackDumps(env, exports);
}

}  // namespace nftp

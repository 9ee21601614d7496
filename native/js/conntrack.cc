// The addon's functions for connection tracking.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "conntrack/filter.h"
#include "conntrack/monitor.h"
#include "conntrack/pack.h"
#include "conntrack/table.h"
#include "js/conntrack_values.h"
#include "js/exports.h"
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
  return RunTask(
      info.Env(), "open", [options] { return std::make_shared<ConntrackTable>(options); },
      [](Napi::Env env, ConntrackTablePtr&& table) { return Wrap(env, std::move(table), kConntrackTableTag); });
}

Napi::Value Close(const Napi::CallbackInfo& info) {
  Release<ConntrackTable>(info, kConntrackTableTag, "conntrack table");
  return info.Env().Undefined();
}

Napi::Value Totals(const Napi::CallbackInfo& info) {
  return RunTask(info.Env(), "conntrack statistics", [table = TableOf(info)] { return table->Totals(); });
}

Napi::Value Counts(const Napi::CallbackInfo& info) {
  return RunTask(info.Env(), "conntrack statistics", [table = TableOf(info)] { return table->Counts(); });
}

Napi::Value Lookup(const Napi::CallbackInfo& info) {
  const ConntrackRecord key = ReadRecord(info.Env(), info[1], kConntrackKeyBytes, "key");
  return RunTask(info.Env(), "lookup", [table = TableOf(info), key]() -> std::optional<ConntrackBlock> {
    const std::optional<ConntrackRecord> found = table->Lookup(key);
    if (!found) return std::nullopt;
    ConntrackPacker packer;
    packer.Add(*found);
    return packer.Take().front();
  });
}

Napi::Value Create(const Napi::CallbackInfo& info) {
  const ConntrackRecord entry = ReadRecord(info.Env(), info[1], sizeof(ConntrackRecord), "entry");
  return RunTask(info.Env(), "create", [table = TableOf(info), entry] {
    table->Create(entry);
    return std::monostate{};
  });
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
  return RunTask(env, "update", [table = TableOf(info), key, change] {
    table->Change(key, change);
    return std::monostate{};
  });
}

Napi::Value Delete(const Napi::CallbackInfo& info) {
  auto keys = std::make_shared<const ConntrackRecords>(ReadRecords(info.Env(), info[1], kConntrackKeyBytes, "keys"));
  return RunTask(info.Env(), "delete", [table = TableOf(info), keys] { return table->Delete(*keys); });
}

Napi::Value DeleteMatching(const Napi::CallbackInfo& info) {
  return RunTask(info.Env(), "delete matching", [table = TableOf(info), filter = ReadFilter(info.Env(), info[1])] {
    return table->DeleteMatching(filter);
  });
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
  return MonitorTask(env, info[2],
                     [table, options] { return std::make_shared<ConntrackMonitor>(table->netns(), options); });
}

}  // namespace

void AddConntrack(Napi::Object exports) {
  Export(exports, {{"conntrackOpen", Guarded<Open>},
                   {"conntrackClose", Guarded<Close>},
                   {"conntrackTotals", Guarded<Totals>},
                   {"conntrackCounts", Guarded<Counts>},
                   {"conntrackLookup", Guarded<Lookup>},
                   {"conntrackCreate", Guarded<Create>},
                   {"conntrackChange", Guarded<Change>},
                   {"conntrackDelete", Guarded<Delete>},
                   {"conntrackDeleteMatching", Guarded<DeleteMatching>},
                   {"conntrackWatch", Guarded<Watch>}});
  AddConntrackDumps(exports);
}

}  // namespace nftp

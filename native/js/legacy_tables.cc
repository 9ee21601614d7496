// The addon's functions for the tables of the older iptables.
#include "socket/legacy_tables.h"

#include <string>

#include "js/exports.h"
#include "js/reader.h"
#include "js/values.h"

namespace nftp {

namespace {

// More bytes than any table has.
constexpr double kMostBytes = 1LL << 53;

Napi::Value Layout(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  const TableRef table = ReadTableRef(info.Env(), info[1]);
  return RunTask(info.Env(), "read iptables table",
                 [connection, table] { return LegacyLayout(connection->netns(), table); });
}

Napi::Value ReadTable(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const ConnectionPtr connection = ConnectionOf(info);
  const TableRef table = ReadTableRef(env, info[1]);
  const auto most_bytes =
      static_cast<uint64_t>(ReadInteger(env, info[2], 0, kMostBytes, Where(std::string("mostBytes"))));
  return RunTask(
      env, "read iptables table",
      [connection, table, most_bytes] { return ReadLegacyTable(connection->netns(), table, most_bytes); },
      [](Napi::Env e, const LegacyTable& read) -> Napi::Value {
        Napi::Object object = Napi::Object::New(e);
        Put(object, "chains", read.chains.names);
        Put(object, "rules", read.chains.rules);
        object.Set("forwardDrops", read.forward_drops);
        return object;
      });
}

}  // namespace

void AddLegacyTables(Napi::Object exports) {
  Export(exports, {{"legacyLayout", Guarded<Layout>}, {"legacyTable", Guarded<ReadTable>}});
}

}  // namespace nftp

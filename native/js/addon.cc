// The addon's exports: functions over tagged handles. Anything that may block runs on libuv's pool. The only global
// state is signal handling (end_signals.cc): each environment (main thread, worker threads) has its own handles.
#include <linux/netlink.h>
#include <malloc.h>
#include <napi.h>

#include <chrono>
#include <memory>
#include <string>
#include <variant>

#include "codec/op_codec.h"
#include "js/async_task.h"
#include "js/batch.h"
#include "js/exports.h"
#include "js/handle.h"
#include "js/monitor.h"
#include "js/reader.h"
#include "js/values.h"
#include "js/writer.h"
#include "socket/connection.h"
#include "socket/exchange.h"

namespace nftp {

namespace {

constexpr napi_type_tag kBatchTag = {0x6e66742d70726f78, 0x6261746368626174};

Napi::Value Open(const Napi::CallbackInfo& info) {
  const ConnectionOptions options = ReadConnectionOptions(info.Env(), info[0]);
  return RunTask(
      info.Env(), "open", [options] { return std::make_shared<Connection>(options); },
      [](Napi::Env env, ConnectionPtr&& connection) { return Wrap(env, std::move(connection), kConnectionTag); });
}

Napi::Value PortId(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), ConnectionOf(info)->port_id());
}

Napi::Value CreateBatch(const Napi::CallbackInfo& info) {
  return Wrap(info.Env(), std::make_shared<JsBatch>(info.Env(), info[0], info[1]), kBatchTag);
}

// prepareBatch(batch, milliseconds): returns true when the batch is ready to be committed.
Napi::Value PrepareBatch(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const auto batch = Unwrap<JsBatch>(env, info[0], kBatchTag, "batch");
  const double budget = ReadInteger(env, info[1], 0, 3600000, Where(std::string("budget")));
  return Napi::Boolean::New(env, batch->Prepare(env, std::chrono::milliseconds(static_cast<int64_t>(budget))));
}

Napi::Value Commit(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const ConnectionPtr connection = ConnectionOf(info);
  const std::shared_ptr<Batch> batch = Unwrap<JsBatch>(env, info[1], kBatchTag, "batch")->Take();
  return RunTask(env, "commit", [connection, batch] { return connection->Commit(*batch); });
}

Napi::Value Generation(const Napi::CallbackInfo& info) {
  return RunTask(info.Env(), "generation", [connection = ConnectionOf(info)] { return connection->Generation(); });
}

Napi::Value Tables(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  const uint8_t family = ReadOptionalFamily(info.Env(), info[1]);
  return RunTask(info.Env(), "dump tables", [connection, family] { return connection->Tables(family); });
}

Napi::Value Chains(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  const TableRef table = ReadTableRef(info.Env(), info[1]);
  const std::optional<std::vector<std::string>> names = ReadOptionalNames(info.Env(), info[2], "chains");
  return RunTask(info.Env(), "dump chains", [connection, table, names] { return connection->Chains(table, names); });
}

Napi::Value Rules(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  const TableRef table = ReadTableRef(info.Env(), info[1]);
  const std::optional<std::string> chain = ReadOptionalName(info.Env(), info[2], "chain");
  return RunTask(info.Env(), "dump rules", [connection, table, chain] { return connection->Rules(table, chain); });
}

Napi::Value Sets(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  const TableRef table = ReadTableRef(info.Env(), info[1]);
  return RunTask(info.Env(), "dump sets", [connection, table] { return connection->Sets(table); });
}

Napi::Value Objects(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  const TableRef table = ReadTableRef(info.Env(), info[1]);
  return RunTask(info.Env(), "dump objects", [connection, table] { return connection->Objects(table); });
}

// object(connection, table, name, type, reset): returns undefined if there is no such object.
Napi::Value NamedObject(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const ConnectionPtr connection = ConnectionOf(info);
  const TableRef table = ReadTableRef(env, info[1]);
  const std::string name = ReadText(env, info[2], kMaxName, Where(std::string("object")));
  const uint32_t type = ReadU32(env, info[3], Where(std::string("object type")));
  const bool reset = ReadBool(env, info[4], Where(std::string("reset")));
  return RunTask(env, "read object", [=] { return connection->NamedObject(table, name, type, reset); });
}

Napi::Value Elements(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  const TableRef table = ReadTableRef(info.Env(), info[1]);
  const SetInfo set = ReadSetInfo(info.Env(), info[2]);
  return RunTask(
      info.Env(), "dump elements",
      [connection, table, set] {
        auto collector = std::make_shared<ElementCollector>(set);
        connection->Elements(table, set.set, collector.get());
        return collector;
      },
      [](Napi::Env env, std::shared_ptr<ElementCollector>&& collector) {
        return ElementsToJs(env, std::move(*collector));
      });
}

Napi::Value Addresses(const Napi::CallbackInfo& info) {
  return RunTask(info.Env(), "dump addresses", [connection = ConnectionOf(info)] { return connection->Addresses(); });
}

Napi::Value Links(const Napi::CallbackInfo& info) {
  return RunTask(info.Env(), "dump interfaces", [connection = ConnectionOf(info)] { return connection->Links(); });
}

int ReadProtocol(Napi::Env env, napi_value value) {
  const uint32_t protocol = ReadU32(env, value, Where(std::string("protocol")));
  if (protocol == NETLINK_ROUTE || protocol == NETLINK_NETFILTER || protocol == NETLINK_GENERIC) {
    return static_cast<int>(protocol);
  }
  throw Failure::Invalid("protocol: expected NETLINK_ROUTE, NETLINK_NETFILTER or NETLINK_GENERIC");
}

// exchange(connection, protocol, request): returns the messages of the kernel's answer.
Napi::Value ExchangeBytes(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  const int protocol = ReadProtocol(info.Env(), info[1]);
  const ByteView view = ReadBytes(info.Env(), info[2], Where(std::string("request")));
  const Bytes request(view.data, view.data + view.length);
  return RunTask(info.Env(), "netlink request", [connection, protocol, request] {
    return Exchange(connection->netns(), protocol, request.data(), request.size());
  });
}

// monitor(connection, options, callback): returns a promise of a handle. The callback may run before it is resolved.
Napi::Value OpenMonitor(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  MonitorOptions options = ReadMonitorOptions(info.Env(), info[1]);
  options.receive_buffer = connection->options().receive_buffer;
  return MonitorTask(info.Env(), info[2], [connection, options] { return connection->OpenMonitor(options); });
}

// watchAddresses(connection, callback): like monitor().
Napi::Value WatchAddresses(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  return MonitorTask(info.Env(), info[1], [connection] {
    return std::make_shared<AddressMonitor>(connection->netns(), Watched::Addresses,
                                            connection->options().receive_buffer);
  });
}

// watchLinks(connection, callback): like watchAddresses().
Napi::Value WatchLinks(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  return MonitorTask(info.Env(), info[1], [connection] {
    return std::make_shared<AddressMonitor>(connection->netns(), Watched::Links, connection->options().receive_buffer);
  });
}

// trace(connection, callback): like monitor().
Napi::Value Trace(const Napi::CallbackInfo& info) {
  const ConnectionPtr connection = ConnectionOf(info);
  return MonitorTask(info.Env(), info[1], [connection] {
    return std::make_shared<TraceMonitor>(connection->netns(), connection->options().receive_buffer);
  });
}

Napi::Value CloseMonitor(const Napi::CallbackInfo& info) {
  Unwrap<JsMonitor>(info.Env(), info[0], kMonitorTag, "monitor")->Close();
  return info.Env().Undefined();
}

Napi::Value Close(const Napi::CallbackInfo& info) {
  Release<Connection>(info, kConnectionTag, "connection");
  return info.Env().Undefined();
}

// releaseMemory(): returns memory of large commits and dumps to the system. malloc keeps freed memory for each of its
// threads. V8 has no reason to collect while nothing is allocated, and would keep half of a heap of dumped objects.
// Reporting more than the 64 MiB of external memory that V8 tolerates makes it start marking in parallel with our work.
Napi::Value ReleaseMemory(const Napi::CallbackInfo& info) {
  constexpr int64_t kPressure = 80 << 20;
  const Napi::Env env = info.Env();
  Napi::MemoryManagement::AdjustExternalMemory(env, kPressure);
  Napi::MemoryManagement::AdjustExternalMemory(env, -kPressure);
  return RunTask(env, "release memory", [] {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    return std::monostate{};
  });
}

Napi::Object Init(Napi::Object exports) {
  Export(exports, {{"open", Guarded<Open>},
                   {"close", Guarded<Close>},
                   {"portId", Guarded<PortId>},
                   {"createBatch", Guarded<CreateBatch>},
                   {"prepareBatch", Guarded<PrepareBatch>},
                   {"commit", Guarded<Commit>},
                   {"generation", Guarded<Generation>},
                   {"tables", Guarded<Tables>},
                   {"chains", Guarded<Chains>},
                   {"rules", Guarded<Rules>},
                   {"sets", Guarded<Sets>},
                   {"objects", Guarded<Objects>},
                   {"object", Guarded<NamedObject>},
                   {"elements", Guarded<Elements>},
                   {"addresses", Guarded<Addresses>},
                   {"links", Guarded<Links>},
                   {"exchange", Guarded<ExchangeBytes>},
                   {"monitor", Guarded<OpenMonitor>},
                   {"watchAddresses", Guarded<WatchAddresses>},
                   {"watchLinks", Guarded<WatchLinks>},
                   {"trace", Guarded<Trace>},
                   {"closeMonitor", Guarded<CloseMonitor>},
                   {"releaseMemory", Guarded<ReleaseMemory>}});
  AddLegacyTables(exports);
  AddConntrack(exports);
  AddEndSignals(exports);
  AddInotify(exports);
  AddStartupSnapshot(exports);
  return exports;
}

}  // namespace

}  // namespace nftp

static Napi::Object InitAddon(Napi::Env, Napi::Object exports) { return nftp::Init(exports); }
NODE_API_MODULE(nft_proxier, InitAddon)

#include "js/monitor.h"

#include <cstddef>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "js/conntrack_values.h"
#include "js/writer.h"

namespace nftp {

namespace {

// The kind and the value that the callback gets for an item.
struct Event {
  const char* kind;
  Napi::Value value;
};

Event EventOf(Napi::Env env, const ChangeBatch& batch) { return {"batch", ToJs(env, batch)}; }
Event EventOf(Napi::Env env, const AddressesChanged&) { return {"change", env.Undefined()}; }
Event EventOf(Napi::Env env, const ConntrackRecords& records) { return {"events", ToJs(env, Packed(records))}; }
Event EventOf(Napi::Env env, const std::vector<TraceEvent>& events) { return {"events", ToJs(env, events)}; }
Event EventOf(Napi::Env env, const EventsLost&) { return {"lost", env.Undefined()}; }
Event EventOf(Napi::Env env, const MonitorFailed& failed) {
  return {"error", ErrorToJs(env, failed.failure, "monitor").Value()};
}

template <typename Source>
class OpenMonitor : public JsMonitor {
 public:
  static std::shared_ptr<JsMonitor> Open(Napi::Env env, std::shared_ptr<Source> source, Napi::Function callback) {
    std::shared_ptr<OpenMonitor> opened(new OpenMonitor(env));
    OpenMonitor* raw = opened.get();
    raw->function_ = Function::New(env, callback, "nft-monitor", 0, 1);
    raw->source_ = std::move(source);
    raw->self_ = opened;
    // Registered after the function's own hook, so it runs before that one: hooks run last in, first out.
    napi_add_env_cleanup_hook(env, OnEnvironmentEnd, raw);
    try {
      raw->source_->Start([raw] { raw->Wake(); });
    } catch (...) {
      raw->Close();
      throw;
    }
    return opened;
  }

  void Close() override {
    if (!self_) return;
    source_->Stop();
    function_.Release();
    napi_remove_env_cleanup_hook(env_, OnEnvironmentEnd, this);
    const std::shared_ptr<OpenMonitor> last = std::move(self_);
  }

 private:
  using Share = std::shared_ptr<OpenMonitor>;

  explicit OpenMonitor(Napi::Env env) : env_(env) {}

  // Called on the source's thread. The main thread may run the call after the monitor was closed and released.
  void Wake() {
    auto share = std::make_unique<Share>(self_);
    if (function_.NonBlockingCall(share.get()) == napi_ok) static_cast<void>(share.release());
  }

  // Runs a queued call. `env` is null if the environment ended first; the share must still be released.
  static void Call(Napi::Env env, Napi::Function callback, std::nullptr_t*, Share* queued) {
    const std::unique_ptr<Share> share(queued);
    if (env != nullptr) (*share)->Deliver(env, callback);
  }
  using Function = Napi::TypedThreadSafeFunction<std::nullptr_t, Share, Call>;

  static void OnEnvironmentEnd(void* self) { static_cast<OpenMonitor*>(self)->Close(); }

  void Deliver(Napi::Env env, Napi::Function callback) {
    for (const auto& item : source_->Take()) {
      if (!self_) return;  // closed, perhaps by the callback
      const Napi::HandleScope scope(env);
      const Event event = std::visit([&](const auto& received) { return EventOf(env, received); }, item);
      callback.Call({Napi::String::New(env, event.kind), event.value});
    }
  }

  const napi_env env_;
  Function function_;
  std::shared_ptr<Source> source_;
  // The thread calls into this object until Close().
  std::shared_ptr<OpenMonitor> self_;
};

}  // namespace

template <typename Source>
std::shared_ptr<JsMonitor> OpenJsMonitor(Napi::Env env, std::shared_ptr<Source> source, Napi::Function callback) {
  return OpenMonitor<Source>::Open(env, std::move(source), callback);
}

template std::shared_ptr<JsMonitor> OpenJsMonitor(Napi::Env, std::shared_ptr<Monitor>, Napi::Function);
template std::shared_ptr<JsMonitor> OpenJsMonitor(Napi::Env, std::shared_ptr<AddressMonitor>, Napi::Function);
template std::shared_ptr<JsMonitor> OpenJsMonitor(Napi::Env, std::shared_ptr<ConntrackMonitor>, Napi::Function);
template std::shared_ptr<JsMonitor> OpenJsMonitor(Napi::Env, std::shared_ptr<TraceMonitor>, Napi::Function);

}  // namespace nftp

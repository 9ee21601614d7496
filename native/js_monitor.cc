#include "js_monitor.h"

#include "js_writer.h"

namespace nftp {

std::shared_ptr<JsMonitor> JsMonitor::Open(Napi::Env env, std::unique_ptr<Monitor> monitor, Napi::Function callback) {
  std::shared_ptr<JsMonitor> opened(new JsMonitor(env));
  JsMonitor* raw = opened.get();
  raw->function_ = Napi::ThreadSafeFunction::New(env, callback, "nft-monitor", 0, 1);
  raw->monitor_ = std::move(monitor);
  raw->self_ = opened;
  // Behind the function's own hook, and so before it: hooks run last in, first out.
  napi_add_env_cleanup_hook(env, OnEnvironmentEnd, raw);
  raw->monitor_->Start([raw] {
    // A call may come when the monitor is closed and forgotten already.
    raw->function_.NonBlockingCall(
        [self = raw->self_](Napi::Env env, Napi::Function function) { self->Deliver(env, function); });
  });
  return opened;
}

void JsMonitor::OnEnvironmentEnd(void* self) { static_cast<JsMonitor*>(self)->Close(); }

void JsMonitor::Close() {
  if (!self_) return;
  monitor_->Stop();
  function_.Release();
  napi_remove_env_cleanup_hook(env_, OnEnvironmentEnd, this);
  const std::shared_ptr<JsMonitor> last = std::move(self_);
}

void JsMonitor::Deliver(Napi::Env env, Napi::Function callback) {
  for (MonitorItem& item : monitor_->Take()) {
    if (!self_) return;  // closed, perhaps by the callback
    const Napi::HandleScope scope(env);
    if (const auto* batch = std::get_if<ChangeBatch>(&item)) {
      callback.Call({Napi::String::New(env, "batch"), ToJs(env, *batch)});
    } else if (const auto* failed = std::get_if<MonitorFailed>(&item)) {
      callback.Call({Napi::String::New(env, "error"), ErrorToJs(env, failed->failure, "monitor").Value()});
    } else {
      callback.Call({Napi::String::New(env, "lost"), env.Undefined()});
    }
  }
}

}  // namespace nftp

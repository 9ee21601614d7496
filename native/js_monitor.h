// A monitor whose items reach a JS callback on the main thread.
#pragma once

#include <napi.h>

#include <memory>

#include "connection.h"
#include "monitor.h"

namespace nftp {

class JsMonitor {
 public:
  // Subscribes, and starts to call `callback(kind, value)` for "batch", "lost" and "error"; `callback` must not throw.
  // Keeps itself and the event loop alive until Close(), or the environment's end. Throws Failure.
  static std::shared_ptr<JsMonitor> Open(Napi::Env env, std::unique_ptr<Monitor> monitor, Napi::Function callback);

  // No callback behind this. Joins the thread.
  void Close();

 private:
  explicit JsMonitor(Napi::Env env) : env_(env) {}
  void Deliver(Napi::Env env, Napi::Function callback);
  static void OnEnvironmentEnd(void* self);

  const napi_env env_;
  Napi::ThreadSafeFunction function_;
  std::unique_ptr<Monitor> monitor_;
  // The thread calls into this object until Close().
  std::shared_ptr<JsMonitor> self_;
};

}  // namespace nftp

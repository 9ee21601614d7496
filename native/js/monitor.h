// Monitors whose items reach a JS callback on the main thread.
#pragma once

#include <napi.h>

#include <memory>

#include "conntrack/monitor.h"
#include "socket/address_monitor.h"
#include "socket/connection.h"
#include "socket/monitor.h"
#include "socket/trace_monitor.h"

namespace nftp {

class JsMonitor {
 public:
  virtual ~JsMonitor() = default;
  JsMonitor(const JsMonitor&) = delete;
  JsMonitor& operator=(const JsMonitor&) = delete;

  // Joins the thread. The callback is not called afterwards.
  virtual void Close() = 0;

 protected:
  JsMonitor() = default;
};

// Starts to call `callback(kind, value)`; it must not throw. The kinds are "batch" (Monitor), "change" (AddressMonitor)
// or "events" (ConntrackMonitor, TraceMonitor), and "lost" and "error" for all. Keeps itself and the event loop alive
// until Close() or the environment's end. Throws Failure.
template <typename Source>
std::shared_ptr<JsMonitor> OpenJsMonitor(Napi::Env env, std::shared_ptr<Source> source, Napi::Function callback);

extern template std::shared_ptr<JsMonitor> OpenJsMonitor(Napi::Env, std::shared_ptr<Monitor>, Napi::Function);
extern template std::shared_ptr<JsMonitor> OpenJsMonitor(Napi::Env, std::shared_ptr<AddressMonitor>, Napi::Function);
extern template std::shared_ptr<JsMonitor> OpenJsMonitor(Napi::Env, std::shared_ptr<ConntrackMonitor>, Napi::Function);
extern template std::shared_ptr<JsMonitor> OpenJsMonitor(Napi::Env, std::shared_ptr<TraceMonitor>, Napi::Function);

}  // namespace nftp

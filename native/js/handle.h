// Handles of native objects, and the conversion of failures to JS errors. Main thread only.
#pragma once

#include <napi.h>

#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "codec/failure.h"
#include "js/async_task.h"
#include "js/monitor.h"
#include "js/values.h"
#include "js/writer.h"
#include "socket/connection.h"

namespace nftp {

// The tags distinguish the kinds of handles.
constexpr napi_type_tag kMonitorTag = {0x6e66742d70726f78, 0x6d6f6e69746f726d};

constexpr napi_type_tag kConnectionTag = {0x6e66742d70726f78, 0x636f6e6e65637469};

// An object that holds a share of `object` until it is collected or its environment ends. It is not an external,
// because Node never frees its own part of externals that still exist when the environment ends.
template <typename T>
Napi::Value Wrap(Napi::Env env, std::shared_ptr<T> object, const napi_type_tag& tag) {
  const Napi::Object handle = Napi::Object::New(env);
  handle.TypeTag(&tag);
  auto holder = std::make_unique<std::shared_ptr<T>>(std::move(object));
  const auto finalize = [](napi_env, void* owned, void*) { delete static_cast<std::shared_ptr<T>*>(owned); };
  Check(env, napi_wrap(env, handle, holder.get(), finalize, nullptr, nullptr));
  static_cast<void>(holder.release());
  return handle;
}

// The handle's own share; empty after it was released.
template <typename T>
std::shared_ptr<T>& ShareOf(Napi::Env env, napi_value value, const napi_type_tag& tag, const char* what) {
  bool matches = false;
  if (TypeOf(env, value) == napi_object) Check(env, napi_check_object_type_tag(env, value, &tag, &matches));
  if (!matches) throw Failure::Invalid(std::string("expected a ") + what);
  void* share = nullptr;
  Check(env, napi_unwrap(env, value, &share));
  return *static_cast<std::shared_ptr<T>*>(share);
}

template <typename T>
std::shared_ptr<T> Unwrap(Napi::Env env, napi_value value, const napi_type_tag& tag, const char* what) {
  std::shared_ptr<T> object = ShareOf<T>(env, value, tag, what);
  if (!object) throw Failure("closed", std::string("the ") + what + " is closed");
  return object;
}

using ConnectionPtr = std::shared_ptr<Connection>;

// Returns the connection that is a function's first argument.
inline ConnectionPtr ConnectionOf(const Napi::CallbackInfo& info) {
  return Unwrap<Connection>(info.Env(), info[0], kConnectionTag, "connection");
}

// Releases the share of the handle that is a function's first argument, at once; running calls keep theirs until they
// end.
template <typename T>
void Release(const Napi::CallbackInfo& info, const napi_type_tag& tag, const char* what) {
  static_cast<void>(Unwrap<T>(info.Env(), info[0], tag, what));
  ShareOf<T>(info.Env(), info[0], tag, what).reset();
}

// Failures of the synchronous part become JS errors of the same form as failures of the asynchronous part.
using Body = Napi::Value (*)(const Napi::CallbackInfo&);
template <Body body>
Napi::Value Guarded(const Napi::CallbackInfo& info) {
  try {
    return body(info);
  } catch (const Failure& failure) {
    throw ErrorToJs(info.Env(), failure, "nf_tables");
  } catch (const Napi::Error&) {
    throw;
  } catch (const std::exception& error) {
    throw ErrorToJs(info.Env(), Failure("system", error.what(), 0), "nf_tables");
  }
}

// Returns a promise of the handle of the monitor that `open` returns. The callback may run before it is resolved.
template <typename Open>
Napi::Value MonitorTask(Napi::Env env, napi_value callback, Open open) {
  if (TypeOf(env, callback) != napi_function) throw Failure::Invalid("expected a callback");
  auto function = std::make_shared<Napi::FunctionReference>(Napi::Persistent(Napi::Function(env, callback)));
  return RunTask(env, "monitor", std::move(open), [function](Napi::Env e, std::invoke_result_t<Open&>&& source) {
    const std::shared_ptr<JsMonitor> monitor = OpenJsMonitor(e, std::move(source), function->Value());
    try {
      return Wrap(e, monitor, kMonitorTag);
    } catch (...) {
      monitor->Close();
      throw;
    }
  });
}

}  // namespace nftp

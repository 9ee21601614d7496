// Handles of native objects, and functions whose failures become JS errors. Main thread only.
#pragma once

#include <napi.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "async_task.h"
#include "failure.h"
#include "js_monitor.h"
#include "js_values.h"
#include "js_writer.h"

namespace nftp {

// Handles are externals; the tags keep one kind from being taken for another.
constexpr napi_type_tag kMonitorTag = {0x6e66742d70726f78, 0x6d6f6e69746f726d};

template <typename T>
Napi::Value Wrap(Napi::Env env, std::shared_ptr<T> object, const napi_type_tag& tag) {
  auto holder = std::make_unique<std::shared_ptr<T>>(std::move(object));
  auto external = Napi::External<std::shared_ptr<T>>::New(env, holder.get(),
                                                          [](Napi::Env, std::shared_ptr<T>* owned) { delete owned; });
  static_cast<void>(holder.release());
  external.TypeTag(&tag);
  return external;
}

template <typename T>
std::shared_ptr<T> Unwrap(Napi::Env env, napi_value value, const napi_type_tag& tag, const char* what) {
  bool matches = false;
  if (TypeOf(env, value) == napi_external) Check(env, napi_check_object_type_tag(env, value, &tag, &matches));
  if (!matches) throw Failure::Invalid(std::string("expected a ") + what);
  std::shared_ptr<T> object = *Napi::External<std::shared_ptr<T>>(env, value).Data();
  if (!object) throw Failure("closed", std::string("the ") + what + " is closed");
  return object;
}

// Failures of the synchronous part become JS errors of the same form as those of the asynchronous one.
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

// A promise of a monitor's handle. The callback may run before it is resolved.
template <typename Source>
Napi::Value MonitorTask(Napi::Env env, napi_value callback, std::function<std::shared_ptr<Source>()> open) {
  if (TypeOf(env, callback) != napi_function) throw Failure::Invalid("expected a callback");
  auto function = std::make_shared<Napi::FunctionReference>(Napi::Persistent(Napi::Function(env, callback)));
  return AsyncTask<std::shared_ptr<Source>>::Run(
      env, "monitor", std::move(open), [function](Napi::Env e, std::shared_ptr<Source>&& source) {
        return Wrap(e, OpenJsMonitor(e, std::move(source), function->Value()), kMonitorTag);
      });
}

}  // namespace nftp

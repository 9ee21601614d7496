// Work on a thread of libuv's pool, with a promise of its result. JS values are touched only on the main thread.
#pragma once

#include <napi.h>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "codec/failure.h"
#include "js/writer.h"

namespace nftp {

// The part that all tasks share. Each exported function has its own task type, so every line in that type is compiled
// again for each.
class PromiseTask : public Napi::AsyncWorker {
 protected:
  PromiseTask(Napi::Env env, const char* action);

  Napi::Promise Start();
  // Runs on the pool. May throw.
  virtual void Work() = 0;
  // Frees the work, which may be large, on the pool instead of on the main thread.
  virtual void EndWork() = 0;
  // Runs on the main thread, after work that has not thrown.
  virtual Napi::Value Result(Napi::Env env) = 0;

 private:
  void Execute() final;
  void OnOK() final;

  Napi::Promise::Deferred deferred_;
  const std::string action_;
  std::optional<Failure> failure_;
};

template <typename Function, typename Convert>
class AsyncTask final : public PromiseTask {
 public:
  AsyncTask(Napi::Env env, const char* action, Function work, Convert convert)
      : PromiseTask(env, action), work_(std::move(work)), convert_(std::move(convert)) {}
  using PromiseTask::Start;

 private:
  void Work() override { result_.emplace((*work_)()); }
  void EndWork() override { work_.reset(); }
  Napi::Value Result(Napi::Env env) override { return convert_(env, std::move(*result_)); }

  std::optional<Function> work_;
  const Convert convert_;
  std::optional<std::invoke_result_t<Function&>> result_;
};

// `work` runs on the pool and may throw. `convert` turns its result into a JS value on the main thread.
template <typename Function, typename Convert>
Napi::Promise RunTask(Napi::Env env, const char* action, Function work, Convert convert) {
  return (new AsyncTask<Function, Convert>(env, action, std::move(work), std::move(convert)))->Start();
}

// Converts the result with ToJs.
template <typename Function>
Napi::Promise RunTask(Napi::Env env, const char* action, Function work) {
  return RunTask(env, action, std::move(work), [](Napi::Env e, const auto& result) { return ToJs(e, result); });
}

}  // namespace nftp

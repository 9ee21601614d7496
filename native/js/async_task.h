// Work on a thread of libuv's pool with a promise for its result. No JS value is touched off the main thread.
#pragma once

#include <napi.h>

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "codec/failure.h"
#include "js/writer.h"

namespace nftp {

template <typename Result>
class AsyncTask : public Napi::AsyncWorker {
 public:
  using Work = std::function<Result()>;
  using Convert = std::function<Napi::Value(Napi::Env, Result&&)>;

  // `work` runs on the pool and may throw; `convert` runs on the main thread.
  static Napi::Promise Run(Napi::Env env, const char* action, Work work, Convert convert) {
    auto* task = new AsyncTask(env, action, std::move(work), std::move(convert));
    const Napi::Promise promise = task->deferred_.Promise();
    task->Queue();
    return promise;
  }

 protected:
  void Execute() override {
    try {
      result_.emplace(work_());
    } catch (const Failure& failure) {
      failure_.emplace(failure);
    } catch (const std::exception& error) {
      failure_.emplace("system", error.what(), 0);
    }
    // What the work holds is freed here and not on the main thread: it may be large.
    work_ = nullptr;
  }

  void OnOK() override {
    const Napi::HandleScope scope(Env());
    if (failure_) {
      deferred_.Reject(ErrorToJs(Env(), *failure_, action_).Value());
      return;
    }
    try {
      deferred_.Resolve(convert_(Env(), std::move(*result_)));
    } catch (const Napi::Error& error) {
      deferred_.Reject(error.Value());
    } catch (const std::exception& error) {
      deferred_.Reject(ErrorToJs(Env(), Failure("system", error.what(), 0), action_).Value());
    }
  }

 private:
  AsyncTask(Napi::Env env, const char* action, Work work, Convert convert)
      : Napi::AsyncWorker(env, action),
        deferred_(Napi::Promise::Deferred::New(env)),
        action_(action),
        work_(std::move(work)),
        convert_(std::move(convert)) {}

  Napi::Promise::Deferred deferred_;
  const std::string action_;
  Work work_;
  Convert convert_;
  std::optional<Result> result_;
  std::optional<Failure> failure_;
};

}  // namespace nftp

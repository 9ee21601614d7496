#include "js/async_task.h"

#include <exception>

namespace nftp {

PromiseTask::PromiseTask(Napi::Env env, const char* action)
    : Napi::AsyncWorker(env, action), deferred_(Napi::Promise::Deferred::New(env)), action_(action) {}

Napi::Promise PromiseTask::Start() {
  // Take the promise before the task is queued: the task may end, and be deleted, at once.
  const Napi::Promise promise = deferred_.Promise();
  Queue();
  return promise;
}

void PromiseTask::Execute() {
  try {
    Work();
  } catch (const Failure& failure) {
    failure_.emplace(failure);
  } catch (const std::exception& error) {
    failure_.emplace("system", error.what(), 0);
  }
  EndWork();
}

void PromiseTask::OnOK() {
  const Napi::HandleScope scope(Env());
  if (failure_) {
    deferred_.Reject(ErrorToJs(Env(), *failure_, action_).Value());
    return;
  }
  try {
    deferred_.Resolve(Result(Env()));
  } catch (const Napi::Error& error) {
    deferred_.Reject(error.Value());
  } catch (const std::exception& error) {
    deferred_.Reject(ErrorToJs(Env(), Failure("system", error.what(), 0), action_).Value());
  }
}

}  // namespace nftp

#include "js/end_signals.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "codec/failure.h"
#include "js/handle.h"

namespace nftp {

namespace {

// The code that a shell gives to a program that the signal ended. Async-signal-safe.
void ExitBy(int signal) { _exit(128 + signal); }

// Whether the signal had its default action until now. One system call asks and replaces: no signal comes in between.
bool ReplaceDefault(int signal) {
  struct sigaction exit_by = {};
  exit_by.sa_handler = ExitBy;
  struct sigaction before = {};
  if (sigaction(signal, &exit_by, &before) != 0) throw Failure::System("sigaction", errno);
  return (before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_DFL;
}

Napi::Value ExitAtEndSignals(const Napi::CallbackInfo& info) {
  const bool term = ReplaceDefault(SIGTERM);
  const bool interrupt = ReplaceDefault(SIGINT);
  // Both: this Node catches neither as it boots, and nothing can be concluded.
  if (term == interrupt) return info.Env().Undefined();
  return Napi::String::New(info.Env(), term ? "SIGTERM" : "SIGINT");
}

}  // namespace

void AddEndSignals(Napi::Env env, Napi::Object exports) {
  exports.Set("exitAtEndSignals", Napi::Function::New(env, Guarded<ExitAtEndSignals>, "exitAtEndSignals"));
}

}  // namespace nftp

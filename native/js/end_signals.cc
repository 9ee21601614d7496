// The addon's function for the signals that ask a program to end.
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "codec/failure.h"
#include "js/exports.h"

namespace nftp {

namespace {

// Exits with the code that a shell reports for a program that the signal ended. Async-signal-safe.
void ExitBy(int signal) { _exit(128 + signal); }

// Returns whether the signal had its default action until now. One system call reads and replaces the action, so no
// signal can arrive in between.
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
  // Nothing can be concluded: if both had the default action, this Node catches neither as it boots.
  if (term == interrupt) return info.Env().Undefined();
  return Napi::String::New(info.Env(), term ? "SIGTERM" : "SIGINT");
}

}  // namespace

void AddEndSignals(Napi::Object exports) { Export(exports, {{"exitAtEndSignals", Guarded<ExitAtEndSignals>}}); }

}  // namespace nftp

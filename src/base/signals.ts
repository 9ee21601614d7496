/**
 * How the process handles signals. The handlers are installed before anything else: PID 1 of a container has no default
 * actions (pid_namespaces(7)). It would ignore a SIGTERM without a handler, and the pod would wait for the end of its grace
 * period.
 */
import { constants } from "node:os";

export type EndSignal = "SIGTERM" | "SIGINT";
type NoticeSignal = "SIGHUP" | "SIGUSR1" | "SIGUSR2";

type Handler<Signal> = (signal: Signal) => void;

const NOTICE_SIGNALS: readonly NoticeSignal[] = ["SIGHUP", "SIGUSR1", "SIGUSR2"];

let onEnd: Handler<EndSignal> = exitBy;

/** Ends the process at once, with the exit code that a shell reports for a program killed by the signal. */
export function exitBy(signal: EndSignal): never {
  process.exit(128 + constants.signals[signal]);
}

/**
 * Until `handleEnd` is called, SIGTERM and SIGINT end the process at once. Until `handleNotices` is called, SIGUSR1 does
 * nothing. By default, Node would open its inspector on SIGUSR1, and any local user could run code as this process.
 *
 * Node catches SIGTERM and SIGINT while it boots, once each (SA_RESETHAND), and then sends itself the signal again. PID 1
 * ignores that second signal. So PID 1 asks which of the two handlers has been used up, and makes both signals end the
 * process in the same system call. A separate check from JavaScript lost about one SIGTERM in some hundreds.
 * @param exitAtEndSignals makes both signals end the process, and returns the one that came before. If it throws, for
 * example because the addon is missing, an earlier signal is lost.
 */
export function installSignalHandlers(exitAtEndSignals: () => EndSignal | undefined): void {
  const missed = process.pid === 1 ? orUndefined(exitAtEndSignals) : undefined;
  process.on("SIGTERM", () => onEnd("SIGTERM"));
  process.on("SIGINT", () => onEnd("SIGINT"));
  process.on("SIGUSR1", () => undefined);
  if (missed !== undefined) exitBy(missed);
}

/**
 * Replaces the action of SIGTERM and SIGINT. Returns a function that restores the immediate exit.
 * @param handler called for each of these signals.
 */
export function handleEnd(handler: Handler<EndSignal>): () => void {
  onEnd = handler;
  return () => {
    if (onEnd === handler) onEnd = exitBy;
  };
}

/** Replaces the default actions of SIGHUP, SIGUSR1 and SIGUSR2: end the process, or open Node's inspector. */
export function handleNotices(handler: Handler<NoticeSignal>): void {
  for (const signal of NOTICE_SIGNALS) process.on(signal, () => handler(signal));
}

function orUndefined<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch {
    return undefined;
  }
}

/**
 * What signals do to the process. One place for all of them, installed ahead of everything else: PID 1 of a container has no
 * default actions (pid_namespaces(7)), so a SIGTERM that finds no handler is lost, and the pod waits for its grace period's end.
 */
import { constants } from "node:os";

export type EndSignal = "SIGTERM" | "SIGINT";
export type NoticeSignal = "SIGHUP" | "SIGUSR1" | "SIGUSR2";

type Handler<Signal> = (signal: Signal) => void;

const NOTICE_SIGNALS: readonly NoticeSignal[] = ["SIGHUP", "SIGUSR1", "SIGUSR2"];

let onEnd: Handler<EndSignal> = exitBy;

/** Ends the process at once, with the code that a shell gives to a program that the signal ended. */
export function exitBy(signal: EndSignal): never {
  process.exit(128 + constants.signals[signal]);
}

/**
 * From here on SIGTERM and SIGINT end the process at once, until `handleEnd`. SIGUSR1 does nothing, until `handleNotices`: left to
 * itself, Node opens its inspector on it, where any local user may run code as this one.
 *
 * Node catches SIGTERM and SIGINT as it boots, for one signal each (SA_RESETHAND), and sends itself the signal again, which does
 * nothing to PID 1. So PID 1 asks which of the two has been used up, and has both handled in the same system call: between a look
 * from JavaScript and its handler one SIGTERM in some hundreds was lost.
 * @param exitAtEndSignals has both end the process from here on, and tells which one came before. Where it fails, as an addon does
 * that is not there, what came before is lost.
 */
export function installSignalHandlers(exitAtEndSignals: () => EndSignal | undefined): void {
  const missed = process.pid === 1 ? orUndefined(exitAtEndSignals) : undefined;
  process.on("SIGTERM", () => onEnd("SIGTERM"));
  process.on("SIGINT", () => onEnd("SIGINT"));
  process.on("SIGUSR1", () => undefined);
  if (missed !== undefined) exitBy(missed);
}

/**
 * Replaces what SIGTERM and SIGINT do. Returns how to go back to the end at once.
 * @param handler called at each of them.
 */
export function handleEnd(handler: Handler<EndSignal>): () => void {
  onEnd = handler;
  return () => {
    if (onEnd === handler) onEnd = exitBy;
  };
}

/** From here on the handler decides what the other signals do that would end the process, or open its inspector. */
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

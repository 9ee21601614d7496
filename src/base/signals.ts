/**
 * What signals do to the process. One place for all of them, installed ahead of everything else: PID 1 of a container has no
 * default actions (pid_namespaces(7)), so a SIGTERM that finds no handler is lost, and the pod waits for its grace period's end.
 */
import { readFileSync } from "node:fs";
import { constants } from "node:os";

export type EndSignal = "SIGTERM" | "SIGINT";
export type NoticeSignal = "SIGHUP" | "SIGUSR1" | "SIGUSR2";

type Handler<Signal> = (signal: Signal) => void;

const END_SIGNALS: readonly EndSignal[] = ["SIGTERM", "SIGINT"];
const NOTICE_SIGNALS: readonly NoticeSignal[] = ["SIGHUP", "SIGUSR1", "SIGUSR2"];

let onEnd: Handler<EndSignal> = exitBy;

/** Ends the process at once, with the code that a shell gives to a program that the signal ended. */
export function exitBy(signal: EndSignal): never {
  process.exit(128 + constants.signals[signal]);
}

/**
 * From here on SIGTERM and SIGINT end the process at once, until `handleEnd`. SIGUSR1 does nothing, until `handleNotices`: left to
 * itself, Node opens its inspector on it, where any local user may run code as this one.
 */
export function installSignalHandlers(): void {
  const missed = process.pid === 1 ? missedDuringBoot(readFileSync("/proc/self/status", "latin1")) : undefined;
  for (const signal of END_SIGNALS) process.on(signal, () => onEnd(signal));
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

/**
 * The end signal that came before any of our code ran. Node catches SIGTERM and SIGINT as it boots, for one signal each
 * (SA_RESETHAND), and sends itself the signal again, which does nothing to PID 1: one of the two that is not caught any more has
 * been used up. Where neither is caught Node works otherwise, and nothing is concluded.
 * @param status content of /proc/self/status; SigCgt is the mask of signals that are caught, bit N - 1 for signal N (proc(5)).
 */
export function missedDuringBoot(status: string): EndSignal | undefined {
  const mask = /^SigCgt:\s*([0-9a-f]+)$/m.exec(status)?.[1];
  if (mask === undefined) return undefined;
  const caught = BigInt(`0x${mask}`);
  const used = END_SIGNALS.filter((signal) => ((caught >> BigInt(constants.signals[signal] - 1)) & 1n) === 0n);
  return used.length === 1 ? used[0] : undefined;
}

/**
 * What signals do to the process. One place for all of them, installed ahead of everything else: PID 1 of a container has no
 * default actions (pid_namespaces(7)), so a SIGTERM that finds no handler is lost, and the pod waits for its grace period's end.
 */
import { readFileSync } from "node:fs";
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
 */
export function installSignalHandlers(): void {
  const isInit = process.pid === 1;
  const atFirst = isInit ? caughtSignals() : undefined;
  // SIGINT first: it warms up the code, so that next to nothing lies between the second look and the handler for SIGTERM.
  process.on("SIGINT", () => onEnd("SIGINT"));
  const thereafter = isInit ? caughtSignals() : undefined;
  process.on("SIGTERM", () => onEnd("SIGTERM"));
  process.on("SIGUSR1", () => undefined);
  const missed = missedDuringBoot(atFirst, thereafter);
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

/** Signals that are caught, bit N - 1 for signal N (SigCgt of proc(5)), as text in hexadecimal; undefined: /proc does not tell. */
function caughtSignals(): string | undefined {
  return /^SigCgt:\s*([0-9a-f]+)$/m.exec(readFileSync("/proc/self/status", "latin1"))?.[1];
}

/**
 * The end signal that came before our handler was there. Node catches SIGTERM and SIGINT as it boots, for one signal each
 * (SA_RESETHAND), and sends itself the signal again, which does nothing to PID 1: one of the two that is not caught any more has
 * been used up. Where neither is caught Node works otherwise, and nothing is concluded.
 * @param atFirst what was caught before any handler of ours was installed.
 * @param thereafter what was caught when SIGINT's was installed, right before SIGTERM's.
 */
export function missedDuringBoot(atFirst: string | undefined, thereafter: string | undefined): EndSignal | undefined {
  if (atFirst === undefined || thereafter === undefined) return undefined;
  const isCaught = (mask: string, signal: EndSignal): boolean =>
    ((BigInt(`0x${mask}`) >> BigInt(constants.signals[signal] - 1)) & 1n) === 1n;
  const [term, int] = [isCaught(atFirst, "SIGTERM"), isCaught(atFirst, "SIGINT")];
  if (!term && !int) return undefined;
  if (!isCaught(thereafter, "SIGTERM")) return "SIGTERM";
  return int ? undefined : "SIGINT";
}

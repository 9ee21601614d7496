/** Programs under test that run in the background. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";

/** Collects what a program logs from now on. Returns a function that gives the log so far. */
export function logOf(daemon: ChildProcess): () => string {
  let log = "";
  daemon.stderr?.setEncoding("utf8").on("data", (text: string) => (log += text));
  return () => log;
}

function hasExited({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}

/** Ends a program, if it still runs, and waits for its exit. For programs that a test may have ended. */
export async function endIfRunning(daemon: ChildProcess, signal?: NodeJS.Signals): Promise<void> {
  if (!hasExited(daemon)) await end(daemon, signal);
}

/** Ends a program, and waits for its exit. Rejects if it has already exited: it should have kept running. */
export async function end(daemon: ChildProcess, signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
  if (hasExited(daemon)) throw new Error(`the program had exited (${daemon.exitCode ?? daemon.signalCode})`);
  const exited = once(daemon, "exit");
  daemon.kill(signal);
  await exited;
}

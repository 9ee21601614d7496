/** Programs under test that run in the background. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";

/** Collects what a program logs from now on. Returns a function that gives the log so far. */
export function logOf(daemon: ChildProcess): () => string {
  let log = "";
  daemon.stderr?.setEncoding("utf8").on("data", (text: string) => (log += text));
  return () => log;
}

/** Ends a program, if it still runs, and waits for its exit. */
export async function end(daemon: ChildProcess, signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
  if (daemon.exitCode !== null || daemon.signalCode !== null) return;
  const exited = once(daemon, "exit");
  daemon.kill(signal);
  await exited;
}

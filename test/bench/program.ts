/** The program itself, in the image's form, as a separate process in this network namespace. */
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface, type Interface } from "node:readline";
import { fileURLToPath } from "node:url";
import { DAEMON, MAIN } from "./image.ts";
import type { Blocked } from "./loop-watch.ts";

/** A line of its log. */
export interface LogLine {
  readonly level: string;
  readonly msg: string;
  readonly family?: string;
  readonly operations?: number;
  readonly ms?: number;
  readonly kernelMs?: number;
  readonly latencyMs?: number;
}

const WATCH = fileURLToPath(new URL("./watch-loop.ts", import.meta.url));
const START_LIMIT_MS = 120_000;

export class Program {
  readonly pid: number;
  /** From its start to the awaited line, ms. */
  readonly startedMs: number;
  readonly #process: ChildProcess;
  readonly #blocked: LoopReports;
  readonly #lines: Interface;

  private constructor(child: ChildProcess, startedMs: number, blocked: LoopReports, lines: Interface) {
    this.#process = child;
    this.pid = child.pid!;
    this.startedMs = startedMs;
    this.#blocked = blocked;
    this.#lines = lines;
  }

  /**
   * Resolves with the log line that `until` waits for; errors are passed on to stderr.
   * @param watchLoop measure how long its event loop is held; takes some memory and time.
   */
  static async start(args: readonly string[], watchLoop: boolean, until: (line: LogLine) => boolean): Promise<Program> {
    // Node imports nothing before a startup snapshot.
    const words = watchLoop ? ["--no-warnings", "--import", WATCH, MAIN] : DAEMON;
    const start = performance.now();
    const child = spawn(process.execPath, [...words, ...args], { stdio: ["ignore", "ignore", "pipe"] });
    const blocked = new LoopReports();
    const lines = createInterface({ input: child.stderr });
    const startedMs = await new Promise<number>((resolve, reject) => {
      const limit = setTimeout(() => reject(new Error("the program was not ready in time")), START_LIMIT_MS);
      child.once("exit", (code) => {
        reject(new Error(`the program ended with code ${code}`));
        clearTimeout(limit);
      });
      lines.once("close", () => blocked.end());
      lines.on("line", (text) => {
        const line = JSON.parse(text) as LogLine & Partial<Blocked>;
        if (line.level === "error") process.stderr.write(`${text}\n`);
        const { msg, heldMs, wallMs, ownMs } = line;
        if (msg === "event loop" && heldMs !== undefined && wallMs !== undefined && ownMs !== undefined) {
          blocked.take({ heldMs, wallMs, ownMs });
        }
        if (!until(line)) return;
        clearTimeout(limit);
        resolve(performance.now() - start);
      });
    });
    return new Program(child, startedMs, blocked, lines);
  }

  /** Calls `see` with each line of its log from now on. */
  follow(see: (line: LogLine) => void): void {
    this.#lines.on("line", (text) => see(JSON.parse(text) as LogLine));
  }

  /** How long its event loop was held since the last call. Needs `watchLoop`. */
  async blocked(): Promise<Blocked> {
    const next = this.#blocked.next();
    this.#process.kill("SIGUSR2");
    const blocked = await next;
    if (blocked === undefined) throw new Error("the program ended");
    return blocked;
  }

  /** Ends the program. Returns how long its event loop was held, if measured. */
  async end(): Promise<Blocked | undefined> {
    const next = this.#blocked.next();
    this.#process.kill("SIGTERM");
    return next;
  }
}

/** Reports of watch-loop.ts, in order. */
class LoopReports {
  #next = Promise.withResolvers<Blocked | undefined>();

  /** Returns the next report, or undefined if the program ended without one. */
  next(): Promise<Blocked | undefined> {
    return this.#next.promise;
  }

  take(blocked: Blocked): void {
    this.#next.resolve(blocked);
    this.#next = Promise.withResolvers();
  }

  end(): void {
    this.#next.resolve(undefined);
  }
}

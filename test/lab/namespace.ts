/** One named network namespace: running programs in it, and its agent. */
import { execFile, spawn, type ChildProcess, type SpawnOptions } from "node:child_process";

import { Agent } from "./agent.ts";
import { patience } from "./patience.ts";

export interface Finished {
  /** 128 + the signal's number is not used here: a killed program has code -1. */
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  /** Written to the program's stdin. */
  readonly input?: string;
  readonly env?: NodeJS.ProcessEnv;
  readonly timeoutMs?: number;
}

/** Runs to the end, whatever the exit code. Rejects when the program cannot be started. */
export function run(program: string, args: readonly string[], options: RunOptions = {}): Promise<Finished> {
  return new Promise((resolve, reject) => {
    const child = execFile(
      program,
      [...args],
      { env: options.env ?? process.env, timeout: patience(options.timeoutMs ?? 60_000), maxBuffer: 64 << 20 },
      (error, stdout, stderr) => {
        if (error && typeof error.code === "string") return reject(error);
        const code = error ? (typeof error.code === "number" ? error.code : -1) : 0;
        resolve({ code, stdout, stderr });
      },
    );
    child.stdin?.on("error", () => undefined); // a program that ends without reading its input is not a failure
    child.stdin?.end(options.input ?? "");
  });
}

/** As `run`, but rejects unless the program ends with 0. */
export async function mustRun(program: string, args: readonly string[], options: RunOptions = {}): Promise<string> {
  const done = await run(program, args, options);
  if (done.code !== 0) throw new Error(`${program} ${args.join(" ")}: exit ${done.code}: ${done.stderr.trim()}`);
  return done.stdout;
}

export class Namespace {
  /** As `ip netns` knows it. */
  readonly name: string;
  #agent: Agent | undefined;
  readonly #children = new Set<ChildProcess>();

  private constructor(name: string) {
    this.name = name;
  }

  static async create(name: string): Promise<Namespace> {
    await mustRun("ip", ["netns", "add", name]);
    return new Namespace(name);
  }

  /** The command that runs what follows it in here. */
  get prefix(): readonly string[] {
    return ["ip", "netns", "exec", this.name];
  }

  run(command: readonly string[], options?: RunOptions): Promise<Finished> {
    return run("ip", ["netns", "exec", this.name, ...command], options);
  }

  mustRun(command: readonly string[], options?: RunOptions): Promise<string> {
    return mustRun("ip", ["netns", "exec", this.name, ...command], options);
  }

  /** Lines for `ip -batch`, in one process. */
  async ip(lines: readonly string[]): Promise<void> {
    if (lines.length > 0) await mustRun("ip", ["-n", this.name, "-batch", "-"], { input: lines.join("\n") + "\n" });
  }

  /** Settings as sysctl(8) names them; conf/default covers the links that are made later. */
  async sysctl(settings: Readonly<Record<string, string | number>>): Promise<void> {
    const lines = Object.entries(settings).map(([key, value]) => {
      const path = `/proc/sys/${key.replaceAll(".", "/")}`;
      return `if [ -e ${path} ]; then echo ${value} > ${path}; fi`;
    });
    await this.mustRun(["sh", "-e"], { input: lines.join("\n") + "\n" });
  }

  /** A program that goes on running; ended by `destroy`, if it has not ended by then. */
  spawn(command: readonly string[], options: SpawnOptions = {}): ChildProcess {
    const child = spawn("ip", ["netns", "exec", this.name, ...command], options);
    this.#children.add(child);
    child.once("exit", () => this.#children.delete(child));
    return child;
  }

  /** Started at the first call. */
  agent(): Agent {
    this.#agent ??= Agent.start(this.prefix);
    return this.#agent;
  }

  async destroy(): Promise<void> {
    const ended = [...this.#children].map((child) => {
      const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
      child.kill("SIGKILL");
      return gone;
    });
    await Promise.all([...ended, this.#agent?.stop()]);
    await mustRun("ip", ["netns", "delete", this.name]);
  }
}

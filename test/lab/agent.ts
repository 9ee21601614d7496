/** The lab's agent (agent.cc) in TypeScript: build it, start it in a namespace, send it commands. */
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { buildProgram, type Toolchain } from "./build.ts";
import { patience } from "./patience.ts";

export type Transport = "tcp" | "udp" | "sctp";

/** Results of connections; see the head of agent.cc. */
export type Outcome =
  | {
      readonly result: "ok";
      readonly count: number;
      /** The server's name. */
      readonly name: string;
      /** The peer address that the server saw. */
      readonly seen: string;
      /** The address and port at which the server was reached. */
      readonly at: string;
      readonly atPort: number;
      /** Whether the server saw the exact address and port that the connection was opened from. */
      readonly sourceKept: boolean;
    }
  | { readonly result: "refused"; readonly count: number }
  | { readonly result: "unreachable"; readonly count: number; readonly type: number; readonly code: number }
  | { readonly result: "timeout"; readonly count: number }
  | { readonly result: "garbled"; readonly count: number }
  | { readonly result: "error"; readonly count: number; readonly error: string };

export interface Probe {
  readonly protocol: Transport;
  /** Default: the kernel chooses. */
  readonly source?: string;
  readonly destination: string;
  readonly port: number;
  /** Number of connections, each from its own source port. Default 1. */
  readonly count?: number;
  /** Per connection, on hardware. Default 10,000: only a failure waits that long, or silence that a test expects. */
  readonly timeoutMs?: number;
  /** Maximum number of connections open at once. Default 32. */
  readonly concurrency?: number;
  /** Default: a new port for each connection. */
  readonly sourcePort?: number;
}

/** A sender that keeps sending from one socket. */
export interface FlowSpec {
  readonly protocol: "udp" | "sctp";
  readonly source: string;
  readonly sourcePort: number;
  readonly destination: string;
  readonly port: number;
  readonly intervalMs: number;
}

/** Consecutive answers of one server. Times are CLOCK_MONOTONIC in ms, like `process.hrtime`. */
export interface FlowAnswers {
  readonly name: string;
  readonly firstMs: number;
  readonly lastMs: number;
  readonly count: number;
}

/** Compiles the agent unless it is up to date. Returns its path. */
export function buildAgent(toolchain?: Toolchain): string {
  return buildProgram("agent", ["serve.hpp", "probe.hpp", "flow.hpp", "net.hpp"], "-O1", toolchain);
}

interface Waiter {
  resolve(answer: Record<string, unknown>): void;
  reject(error: Error): void;
}

/** One running agent. Commands run concurrently; each promise resolves with the answer to its own command. */
export class Agent {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<string, Waiter>();
  #count = 0;
  #gone: Error | undefined;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  /** `prefix` is the command that enters the namespace. */
  static start(prefix: readonly string[]): Agent {
    const [program, ...args] = [...prefix, buildAgent()];
    const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
    const agent = new Agent(child);
    agent.#listen();
    return agent;
  }

  async serve(protocol: Transport, address: string, port: number, name: string): Promise<void> {
    await this.#ask(`serve ${protocol} ${address} ${port} ${name}`);
  }

  /** Never rejects because of network results; rejects if the command itself cannot be sent. */
  async probe(probe: Probe): Promise<readonly Outcome[]> {
    const { protocol, source = "*", destination, port, count = 1, timeoutMs = 10_000 } = probe;
    const { concurrency = 32, sourcePort = 0 } = probe;
    const words = [protocol, source, destination, port, count, patience(timeoutMs), concurrency, sourcePort];
    const answer = await this.#ask(`probe ${words.join(" ")}`);
    return answer["outcomes"] as readonly Outcome[];
  }

  /** Resolves when the flows get the command to end, with the servers that answered, in order. */
  async flow(spec: FlowSpec): Promise<readonly FlowAnswers[]> {
    const { protocol, source, destination, port, sourcePort, intervalMs } = spec;
    const words = [protocol, source, destination, port, sourcePort, intervalMs];
    const answer = await this.#ask(`flow ${words.join(" ")}`);
    return answer["answers"] as readonly FlowAnswers[];
  }

  /** Ends all flows, each after one more answer. */
  async endFlows(): Promise<void> {
    await this.#ask("endflows");
  }

  /** Resolves when the process has exited. */
  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = new Promise<void>((resolve) => this.#child.once("exit", () => resolve()));
    this.#child.stdin?.end();
    await ended;
  }

  #ask(command: string): Promise<Record<string, unknown>> {
    if (this.#gone) return Promise.reject(this.#gone);
    const id = String(++this.#count);
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject: (error) => reject(new Error(`${error.message} (${command})`)) });
      this.#child.stdin?.write(`${id} ${command}\n`);
    });
  }

  #listen(): void {
    const { stdin, stdout } = this.#child;
    if (!stdin || !stdout) throw new Error("the agent has no pipes");
    stdin.on("error", (error) => this.#end(error));
    this.#child.on("error", (error) => this.#end(error));
    this.#child.on("exit", (code, signal) => this.#end(new Error(`the agent ended (${signal ?? code})`)));
    createInterface({ input: stdout }).on("line", (line) => {
      const answer = JSON.parse(line) as Record<string, unknown>;
      const id = String(answer["id"]);
      const waiter = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (typeof answer["error"] === "string") waiter?.reject(new Error(`agent: ${answer["error"]}`));
      else waiter?.resolve(answer);
    });
  }

  #end(error: Error): void {
    this.#gone ??= error;
    for (const waiter of this.#waiting.values()) waiter.reject(this.#gone);
    this.#waiting.clear();
  }
}

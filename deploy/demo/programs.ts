/** The programs that the demo runs in its namespaces: pods, clients, and the proxier itself. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import type { Namespace } from "../../test/lab/namespace.ts";
import type { Pod } from "../../test/lab/topology.ts";
import type { Answers } from "./requests.ts";

const root = path.resolve(import.meta.dirname, "..", "..");
const program = (name: string): string => path.join(import.meta.dirname, name);

export const PORT = 8080;
export const MAIN = path.join(root, "dist", "main.js");

/** Only a failure takes so long, even on a busy machine. */
const PATIENCE_MS = 60_000;

/** Asks every 2 ms until there is a value, and returns it. Rejects if there is none in time. */
async function until<T>(what: string, value: () => T | undefined): Promise<T> {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = value();
    if (found !== undefined) return found;
    if (Date.now() > deadline) throw new Error(`not within ${PATIENCE_MS / 1000} s: ${what}`);
    await sleep(2);
  }
}

/** Returns the output of a program that was started with a pipe, by line. */
export function lines(stream: Readable | null): AsyncIterable<string> {
  if (stream === null) throw new Error("the program was started without a pipe");
  return createInterface({ input: stream });
}

/** Starts a pod's server. Resolves when it listens. */
export async function startPod(pod: Pod): Promise<ChildProcess> {
  const command = [process.execPath, program("pod.ts"), pod.name, String(PORT), pod.address.ip, pod.address.ip6];
  const child = pod.namespace.spawn(command, { stdio: ["ignore", "pipe", "inherit"] });
  for await (const line of lines(child.stdout)) if (line === "ready") return child;
  throw new Error(`pod ${pod.name} did not start`);
}

/** Stops a pod as kubelet does: it may finish its current requests. */
export async function stopPod(child: ChildProcess): Promise<void> {
  const ended = once(child, "exit");
  child.kill("SIGTERM");
  await ended;
}

/** Sends requests until `stop`, and records when each pod first answers. */
export class Load {
  readonly #child: ChildProcess;
  readonly #first = new Map<string, number>();
  readonly #done: Promise<Answers>;

  constructor(from: Namespace, url: string, count: number | "until-told") {
    const command = [process.execPath, program("requests.ts"), url, String(count)];
    this.#child = from.spawn(command, { stdio: ["pipe", "pipe", "inherit"] });
    this.#done = this.#read();
  }

  /** Resolves when any pod has answered. */
  async begun(): Promise<void> {
    await until("an answer to the client's requests", () => (this.#first.size > 0 ? true : undefined));
  }

  /** Waits until this pod has answered. Returns when it answered first, ms since the epoch. */
  firstAnswer(pod: string): Promise<number> {
    return until(`an answer of ${pod}`, () => this.#first.get(pod));
  }

  /** Stops after the current requests are complete. */
  async stop(): Promise<Answers> {
    this.#child.stdin?.end();
    return this.#done;
  }

  /** Resolves when all requests are answered. Only for a load with a count. */
  finished(): Promise<Answers> {
    return this.#done;
  }

  async #read(): Promise<Answers> {
    for await (const line of lines(this.#child.stdout)) {
      const [word, pod, ms] = line.split(" ");
      if (word === "first" && pod !== undefined) this.#first.set(pod, Number(ms));
      else return JSON.parse(line) as Answers;
    }
    throw new Error("the client ended without a word");
  }
}

/** A line of the proxier's log, with the fields that the demo reads. */
export interface LogLine {
  /** RFC 3339. */
  readonly ts: string;
  readonly level: string;
  readonly msg: string;
  readonly family?: string;
  readonly operations?: number;
  readonly ms?: number;
  readonly kernelMs?: number;
}

/** nft-proxier in the node's namespace, and its log. */
export class ProxierProcess {
  readonly #child: ChildProcess;
  readonly log: LogLine[] = [];
  #ended: string | undefined;

  /**
   * @param page whether to use kube-proxy's ports, with the status page on the metrics port. Otherwise runs `run`,
   * which listens on nothing.
   */
  constructor(node: Namespace, manifests: string, config: string, page: boolean) {
    // This makes it log each write.
    const own = page ? ["--hostname-override=node-a", "-v=2"] : ["run", "--log-level", "debug"];
    const command = [process.execPath, MAIN, ...own, "--manifests", manifests, "--config", config];
    this.#child = node.spawn(command, { stdio: ["ignore", "inherit", "pipe"] });
    this.#child.once("exit", (code, signal) => (this.#ended = `ended with ${signal ?? `code ${code}`}`));
    void this.#read();
  }

  /**
   * Returns the first line that satisfies `wanted`, at index `from` of the log or later. Rejects if no such line appears
   * in time.
   */
  line(wanted: (line: LogLine) => boolean, from: number): Promise<LogLine> {
    return until("a line of the proxier's log", () => {
      if (this.#ended !== undefined) throw new Error(`the proxier ${this.#ended}`);
      return this.log.slice(from).find(wanted);
    });
  }

  /** Returns the first logged write of a family, at index `from` of the log or later. */
  synced(family: string, from: number): Promise<LogLine> {
    return this.line((line) => line.msg === "synced" && line.family === family, from);
  }

  async stop(): Promise<void> {
    if (this.#ended !== undefined) return;
    const ended = once(this.#child, "exit");
    this.#child.kill("SIGTERM");
    await ended;
  }

  async #read(): Promise<void> {
    for await (const text of lines(this.#child.stderr)) {
      if (!text.startsWith("{")) {
        process.stderr.write(`${text}\n`);
        continue;
      }
      const line = JSON.parse(text) as LogLine;
      this.log.push(line);
      if (line.level === "warn" || line.level === "error") process.stdout.write(`  proxier: ${text}\n`);
    }
  }
}

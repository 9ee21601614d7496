/** Sends single packets between namespaces and sees what becomes of them and their replies (fate.cc). */
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { buildHelper } from "./build.ts";
import type { Namespace } from "./namespace.ts";

export interface Sending {
  readonly protocol: "tcp" | "udp";
  readonly from: Namespace;
  readonly source: string;
  /** Default: the next port. */
  readonly sourcePort?: number;
  readonly destination: string;
  readonly port: number;
  /** How long to wait for a packet or a reply that does not come, ms. */
  readonly waitMs: number;
}

export interface Fate {
  /** Name of the server that the packet reached, "" if none. */
  readonly at: string;
  /** The port on which the packet reached it. */
  readonly port: number;
  /** The source address that the server saw. */
  readonly seen: string;
  /** Whether the reply reached the sender. */
  readonly reply: boolean;
  /** The error that the sender got (an errno), 0 if none. */
  readonly error: number;
}

/** Source ports, each used once before any is used again, so that no packet belongs to an earlier one's connection. */
const FIRST_PORT = 33_000;
const LAST_PORT = 60_999;

/** One process for all namespaces. Commands run one after another. */
export class Fates {
  readonly #child: ChildProcess;
  readonly #waiting: PromiseWithResolvers<string>[] = [];
  #port = FIRST_PORT;

  constructor() {
    this.#child = spawn(buildHelper("fate"), { stdio: ["pipe", "pipe", "inherit"] });
    createInterface({ input: this.#child.stdout! }).on("line", (line) => this.#waiting.shift()?.resolve(line));
    this.#child.on("exit", () => {
      for (const waiting of this.#waiting.splice(0)) waiting.reject(new Error("the program fate ended"));
    });
  }

  /** Answers UDP and TCP on a port of a namespace, on all addresses. */
  async serve(namespace: Namespace, name: string, port: number): Promise<void> {
    await this.#ask(`serve ${namespace.name} ${name} ${port}`);
  }

  nextPort(): number {
    this.#port = this.#port === LAST_PORT ? FIRST_PORT : this.#port + 1;
    return this.#port;
  }

  async send(sending: Sending): Promise<Fate> {
    const { protocol, from, source, sourcePort = this.nextPort(), destination, port, waitMs } = sending;
    const words = [protocol, from.name, source, sourcePort, destination, port, waitMs];
    return (await this.#ask(`send ${words.join(" ")}`)) as Fate;
  }

  async stop(): Promise<void> {
    const ended = new Promise<void>((resolve) => this.#child.once("exit", () => resolve()));
    this.#child.stdin?.end();
    await ended;
  }

  async #ask(command: string): Promise<unknown> {
    const waiting = Promise.withResolvers<string>();
    this.#waiting.push(waiting);
    this.#child.stdin?.write(`${command}\n`);
    const answer = JSON.parse(await waiting.promise) as { readonly failed?: string };
    if (answer.failed !== undefined) throw new Error(`${command}: ${answer.failed}`);
    return answer;
  }
}

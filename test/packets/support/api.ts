/** An API server in a namespace of the lab: the double as a separate process, with remote control. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { ApiServerOptions } from "../../lab/api-server/api-server.ts";
import type { Calls } from "../../lab/api-server/process.ts";
import type { Namespace } from "../../lab/namespace.ts";

type Result<Name extends keyof Calls> = Awaited<ReturnType<Calls[Name]>>;

type Waiting = Map<number, (answer: { result?: unknown; error?: string }) => void>;

interface Hello {
  readonly url: string;
  readonly ca: string;
  readonly kubeconfig: string;
}

const PROGRAM = join(import.meta.dirname, "../../lab/api-server/process.ts");

export class Api {
  readonly url: string;
  /** PEM of the authority; "" without TLS. */
  readonly ca: string;
  readonly kubeconfig: string;
  readonly #child: ChildProcess;
  readonly #waiting: Waiting;
  #calls = 0;

  private constructor(child: ChildProcess, hello: Hello, waiting: Waiting) {
    this.#child = child;
    this.url = hello.url;
    this.ca = hello.ca;
    this.kubeconfig = hello.kubeconfig;
    this.#waiting = waiting;
  }

  static async start(namespace: Namespace, options: ApiServerOptions = {}): Promise<Api> {
    const command = [process.execPath, "--no-warnings", PROGRAM, JSON.stringify(options)];
    const child = namespace.spawn(command, { stdio: ["pipe", "pipe", "inherit"] });
    const waiting: Waiting = new Map();
    return new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("exit", (code) => {
        const error = `the API server ended with ${code}`;
        reject(new Error(error));
        for (const answer of waiting.values()) answer({ error });
      });
      createInterface({ input: child.stdout! }).on("line", (line) => {
        const message = JSON.parse(line) as Hello & { id?: number };
        if (message.id === undefined) return resolve(new Api(child, message, waiting));
        waiting.get(message.id)?.(message as object);
        waiting.delete(message.id);
      });
    });
  }

  /** Ends the server, and its connections. */
  async stop(): Promise<void> {
    const exited = once(this.#child, "exit");
    this.#child.stdin!.end();
    await exited;
  }

  /** Calls the double; see process.ts. */
  async call<Name extends keyof Calls>(call: Name, ...args: Parameters<Calls[Name]>): Promise<Result<Name>> {
    const id = ++this.#calls;
    const answered = new Promise<{ result?: unknown; error?: string }>((resolve) => this.#waiting.set(id, resolve));
    this.#child.stdin!.write(`${JSON.stringify({ id, call, args })}\n`);
    const { result, error } = await answered;
    if (error !== undefined) throw new Error(`${call}: ${error}`);
    return result as Result<Name>;
  }
}

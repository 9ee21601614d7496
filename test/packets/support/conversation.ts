/** One TCP connection that stays open while things change around it. */
import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";

import type { Namespace } from "../../lab/namespace.ts";
import { EVENTUALLY_MS } from "../../lab/eventually.ts";

const SERVER = `
  require("node:net").createServer((socket) => socket.on("error", () => {}).pipe(socket))
    .listen(Number(process.argv[1]), process.argv[2], () => console.log("listening"));
`;
const CLIENT = `
  const socket = require("node:net").connect(Number(process.argv[1]), process.argv[2], () => {
    console.log("connected");
    process.stdin.pipe(socket).pipe(process.stdout);
  });
  socket.on("error", (error) => console.log(error.code));
`;

function startScript(namespace: Namespace, script: string, port: number, address: string): ChildProcess {
  const command = [process.execPath, "-e", script, String(port), address];
  return namespace.spawn(command, { stdio: ["pipe", "pipe", "inherit"] });
}

/**
 * What a program prints. Read from its start to its end, and kept until it is asked for: node:child_process throws away what
 * nobody reads of a program that has ended, as one whose connection is reset between two words has.
 */
class Lines {
  readonly #kept: string[] = [];
  #waiting: ((line: string) => void) | undefined;

  constructor({ stdout }: ChildProcess) {
    if (!stdout) throw new Error("the program has no stdout");
    createInterface({ input: stdout }).on("line", (line) => {
      if (this.#waiting) this.#waiting(line);
      else this.#kept.push(line);
    });
  }

  /** The next one; "" when none comes in time. */
  async next(timeoutMs: number): Promise<string> {
    const kept = this.#kept.shift();
    if (kept !== undefined) return kept;
    return new Promise((resolve) => {
      const timer = setTimeout(() => finish(""), timeoutMs);
      const finish = (line: string): void => {
        clearTimeout(timer);
        this.#waiting = undefined;
        resolve(line);
      };
      this.#waiting = finish;
    });
  }

  async expect(line: string): Promise<void> {
    const got = await this.next(EVENTUALLY_MS);
    if (got !== line) throw new Error(`expected "${line}", got "${got}"`);
  }
}

/** A server that sends back what it gets; it ends with its namespace. */
export async function startEchoServer(namespace: Namespace, address: string, port: number): Promise<void> {
  await new Lines(startScript(namespace, SERVER, port, address)).expect("listening");
}

export class Conversation {
  readonly #child: ChildProcess;
  readonly #lines: Lines;

  private constructor(child: ChildProcess) {
    this.#child = child;
    this.#lines = new Lines(child);
  }

  static async open(namespace: Namespace, address: string, port: number): Promise<Conversation> {
    const child = startScript(namespace, CLIENT, port, address);
    // A connection that is reset by a packet under way, an acknowledgement say, ends the program before the next word.
    child.stdin?.on("error", () => undefined);
    const conversation = new Conversation(child);
    await conversation.#lines.expect("connected");
    return conversation;
  }

  /** What comes back; "" for nothing within `timeoutMs`. */
  async say(word: string, timeoutMs = EVENTUALLY_MS): Promise<string> {
    const answer = this.#lines.next(timeoutMs);
    this.#child.stdin?.write(`${word}\n`);
    return answer;
  }

  close(): void {
    this.#child.kill("SIGKILL");
  }
}

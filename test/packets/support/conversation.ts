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

/** The next line that the program prints; "" when none comes in time. */
function nextLine(child: ChildProcess, timeoutMs: number): Promise<string> {
  const { stdout } = child;
  if (!stdout) throw new Error("the program has no stdout");
  return new Promise((resolve) => {
    const lines = createInterface({ input: stdout });
    const timer = setTimeout(() => finish(""), timeoutMs);
    const finish = (line: string): void => {
      clearTimeout(timer);
      lines.close();
      resolve(line);
    };
    lines.once("line", finish);
  });
}

async function expectLine(child: ChildProcess, line: string): Promise<void> {
  const got = await nextLine(child, EVENTUALLY_MS);
  if (got !== line) throw new Error(`expected "${line}", got "${got}"`);
}

/** A server that sends back what it gets; it ends with its namespace. */
export async function startEchoServer(namespace: Namespace, address: string, port: number): Promise<void> {
  await expectLine(startScript(namespace, SERVER, port, address), "listening");
}

export class Conversation {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  static async open(namespace: Namespace, address: string, port: number): Promise<Conversation> {
    const child = startScript(namespace, CLIENT, port, address);
    // A connection that is reset by a packet under way, an acknowledgement say, ends the program before the next word.
    child.stdin?.on("error", () => undefined);
    await expectLine(child, "connected");
    return new Conversation(child);
  }

  /** What comes back; "" for nothing within `timeoutMs`. */
  async say(word: string, timeoutMs = EVENTUALLY_MS): Promise<string> {
    const answer = nextLine(this.#child, timeoutMs);
    this.#child.stdin?.write(`${word}\n`);
    return answer;
  }

  close(): void {
    this.#child.kill("SIGKILL");
  }
}

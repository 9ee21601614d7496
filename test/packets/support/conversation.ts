/** TCP connections that stay open during changes, and echo servers. */
import { createInterface } from "node:readline";
import type { Namespace } from "../../lab/namespace.ts";
import { EVENTUALLY_MS } from "../../lab/eventually.ts";

/**
 * Handles all connections and servers of a namespace: starting a process for each takes longer than most conversations.
 */
const PROGRAM = `
  const net = require("node:net");
  const sockets = new Map();
  const tell = (id, line) => console.log(JSON.stringify({ id, line }));
  const connect = (id, where) => {
    const socket = net.connect(where, () => tell(id, "connected")).on("error", ({ code }) => tell(id, code));
    let rest = "";
    socket.setEncoding("utf8").on("data", (text) => {
      const lines = (rest + text).split("\\n");
      rest = lines.pop();
      for (const line of lines) tell(id, line);
    });
    sockets.set(id, socket);
  };
  const listen = (id, where) =>
    net.createServer((socket) => socket.on("error", () => {}).pipe(socket)).listen(where, () => tell(id, "listening"));
  require("node:readline").createInterface({ input: process.stdin }).on("line", (text) => {
    const { id, to, at, word } = JSON.parse(text);
    if (to) connect(id, to);
    else if (at) listen(id, at);
    else if (word === undefined) sockets.get(id).destroy();
    else sockets.get(id).write(word + "\\n");
  });
`;

interface Where {
  readonly host: string;
  readonly port: number;
}

/** Output about one connection or server, from start to end, kept until it is read. */
class Lines {
  readonly #kept: string[] = [];
  #waiting: ((line: string) => void) | undefined;

  add(line: string): void {
    if (this.#waiting) this.#waiting(line);
    else this.#kept.push(line);
  }

  /** Returns the next line; "" if none comes in time. */
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

/** The program in one namespace; it ends with the namespace. */
class Talker {
  static readonly #all = new WeakMap<Namespace, Talker>();
  readonly #write: (text: string) => void;
  readonly #lines = new Map<number, Lines>();

  private constructor(namespace: Namespace) {
    const child = namespace.spawn([process.execPath, "-e", PROGRAM], { stdio: ["pipe", "pipe", "inherit"] });
    createInterface({ input: child.stdout! }).on("line", (text) => {
      const { id, line } = JSON.parse(text) as { readonly id: number; readonly line: string };
      this.#lines.get(id)?.add(line);
    });
    // The namespace may end before the program.
    child.stdin!.on("error", () => undefined);
    this.#write = (text) => void child.stdin!.write(text);
  }

  static in(namespace: Namespace): Talker {
    const known = this.#all.get(namespace);
    if (known !== undefined) return known;
    const made = new Talker(namespace);
    this.#all.set(namespace, made);
    return made;
  }

  /** `to`: opens a connection; `at`: starts a server. */
  begin(what: { readonly to: Where } | { readonly at: Where }): { readonly id: number; readonly lines: Lines } {
    const id = this.#lines.size + 1;
    const lines = new Lines();
    this.#lines.set(id, lines);
    this.#write(`${JSON.stringify({ id, ...what })}\n`);
    return { id, lines };
  }

  /** Without a word, closes the connection. */
  tell(id: number, word?: string): void {
    this.#write(`${JSON.stringify({ id, word })}\n`);
  }
}

/** An echo server that ends with its namespace. */
export async function startEchoServer(namespace: Namespace, host: string, port: number): Promise<void> {
  await Talker.in(namespace).begin({ at: { host, port } }).lines.expect("listening");
}

export class Conversation {
  readonly #talker: Talker;
  readonly #id: number;
  readonly #lines: Lines;

  private constructor(talker: Talker, where: Where) {
    this.#talker = talker;
    const { id, lines } = talker.begin({ to: where });
    this.#id = id;
    this.#lines = lines;
  }

  static async open(namespace: Namespace, host: string, port: number): Promise<Conversation> {
    const conversation = new Conversation(Talker.in(namespace), { host, port });
    await conversation.#lines.expect("connected");
    return conversation;
  }

  /** Returns the echo; "" if nothing arrives within `timeoutMs`. */
  async say(word: string, timeoutMs = EVENTUALLY_MS): Promise<string> {
    const answer = this.#lines.next(timeoutMs);
    this.#talker.tell(this.#id, word);
    return answer;
  }

  close(): void {
    this.#talker.tell(this.#id);
  }
}

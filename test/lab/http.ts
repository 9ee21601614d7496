/**
 * HTTP from inside a namespace. One process there sends all requests, because starting a process for each takes longer than the answer.
 */
import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import type { Namespace } from "./namespace.ts";

export interface Answer {
  readonly status: number;
  readonly body: string;
}

/** Each request uses a new connection: the server may have been replaced meanwhile. */
const PROGRAM = `
  const { get } = require("node:http");
  const say = (answer) => console.log(JSON.stringify(answer));
  require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
    const { id, url } = JSON.parse(line);
    get(url, { agent: false }, (response) => {
      let body = "";
      response.setEncoding("utf8").on("data", (text) => (body += text));
      response.on("end", () => say({ id, status: response.statusCode, body }));
    }).on("error", ({ message }) => say({ id, error: message }));
  });
`;

export class HttpClient {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, (answer: Partial<Answer> & { readonly error?: string }) => void>();
  #count = 0;

  /** The process ends with the namespace. */
  constructor(namespace: Namespace) {
    this.#child = namespace.spawn([process.execPath, "-e", PROGRAM], { stdio: ["pipe", "pipe", "inherit"] });
    createInterface({ input: this.#child.stdout! }).on("line", (line) => {
      const answer = JSON.parse(line) as Answer & { readonly id: number };
      this.#waiting.get(answer.id)?.(answer);
      this.#waiting.delete(answer.id);
    });
  }

  /** Rejects if no answer comes, for example because nothing listens there. */
  async get(url: string): Promise<Answer> {
    const id = ++this.#count;
    const answered = new Promise<Partial<Answer> & { readonly error?: string }>((resolve) =>
      this.#waiting.set(id, resolve),
    );
    this.#child.stdin!.write(`${JSON.stringify({ id, url })}\n`);
    const { status, body = "", error } = await answered;
    if (status === undefined) throw new Error(`${url}: ${error}`);
    return { status, body };
  }
}

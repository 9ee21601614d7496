/** Many TCP connections of one program that stay open during changes. */
import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";

import { EVENTUALLY_MS } from "../../lab/eventually.ts";
import type { Namespace } from "../../lab/namespace.ts";

/**
 * Prints one line of JSON for each line of input: how many connections echoed it, and why the others ended. Closing
 * sends a reset, so nothing waits for the steps after a FIN.
 */
const CLIENT = `
  const net = require("node:net");
  const [targets, from] = process.argv.slice(1).map((text) => JSON.parse(text));
  const ended = [];
  const sockets = targets.map(({ address, port }, i) => {
    const local = { localAddress: from.address, localPort: from.firstPort && from.firstPort + i };
    const socket = net.connect({ host: address, port, ...local });
    socket.setNoDelay(true);
    socket.on("error", (error) => ended.push(address + ": " + error.code));
    socket.on("end", () => ended.push(address + ": end"));
    socket.got = "";
    socket.on("data", (data) => (socket.got += data));
    return socket;
  });
  const later = (ms) => new Promise((done) => setTimeout(done, ms));
  async function until(isDone, ms) {
    for (const start = Date.now(); !isDone() && ended.length === 0 && Date.now() - start < ms; ) await later(5);
  }
  const tell = (fields) => console.log(JSON.stringify({ ...fields, ended }));
  (async () => {
    const limit = Number(process.argv[3]);
    await until(() => sockets.every((one) => one.readyState === "open"), limit);
    tell({ ok: sockets.filter((one) => one.readyState === "open").length, local: [...new Set(sockets.map((one) => one.localAddress))] });
    for await (const word of require("node:readline").createInterface({ input: process.stdin })) {
      for (const one of sockets) {
        one.got = "";
        if (word === "close") one.resetAndDestroy();
        else one.write(word + "\\n");
      }
      if (word === "close") process.exit(0);
      await until(() => sockets.every((one) => one.got === word + "\\n"), limit);
      tell({ ok: sockets.filter((one) => one.got === word + "\\n").length });
    }
  })();
`;

/** Results of a crowd's connections. */
export interface CrowdAnswer {
  /** Number of connections that succeeded in time. */
  readonly ok: number;
  /** Why the others ended: "10.96.1.1: ECONNRESET". */
  readonly ended: readonly string[];
  /** Their own addresses, if they opened. */
  readonly local?: readonly string[];
}

/** Origin of a crowd's connections; the kernel chooses undefined fields. */
export interface CrowdSource {
  readonly address?: string;
  /** Port of the first connection; each further connection has the next port. */
  readonly firstPort?: number;
}

export class Crowd {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly count: number;
  /** Result of opening them. */
  opened: CrowdAnswer = { ok: 0, ended: [] };

  private constructor(child: ChildProcess, count: number) {
    this.#child = child;
    this.count = count;
    const { stdout } = child;
    if (!stdout) throw new Error("the program has no stdout");
    this.#lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
  }

  /** Opens a connection to each target. Rejects unless all open. */
  static async open(
    namespace: Namespace,
    targets: readonly { readonly address: string; readonly port: number }[],
    from: CrowdSource = {},
  ): Promise<Crowd> {
    const words = [JSON.stringify(targets), JSON.stringify(from), String(EVENTUALLY_MS)];
    const child = namespace.spawn([process.execPath, "-e", CLIENT, ...words], { stdio: ["pipe", "pipe", "inherit"] });
    const crowd = new Crowd(child, targets.length);
    crowd.opened = await crowd.#answer();
    if (crowd.opened.ok !== targets.length) throw new Error(`opening: ${JSON.stringify(crowd.opened)}`);
    return crowd;
  }

  /** Sends the word on each connection. */
  async say(word: string): Promise<CrowdAnswer> {
    this.#child.stdin?.write(`${word}\n`);
    return this.#answer();
  }

  /** Ends all connections with a reset. */
  async close(): Promise<void> {
    const gone = new Promise((resolve) => this.#child.once("exit", resolve));
    this.#child.stdin?.write("close\n");
    await gone;
  }

  async #answer(): Promise<CrowdAnswer> {
    const { value, done } = await this.#lines.next();
    if (done === true) throw new Error("the program ended");
    return JSON.parse(value) as CrowdAnswer;
  }
}

/**
 * The daemon's socket: JSON over HTTP on a unix socket that only root may open. It computes nothing before a request.
 * No request can change anything, because only GET is allowed.
 */
import { once } from "node:events";
import type { Stats } from "node:fs";
import { chmod, lstat, mkdir, readdir, rename, rm } from "node:fs/promises";
import type { Server } from "node:http";
import { createConnection } from "node:net";
import { basename, dirname, join } from "node:path";
import { BoundedFrequencyRunner, type WriteOutcome } from "../../base/bounded-frequency-runner.js";
import type { Logger } from "../../base/logger.js";
import { isNoEntry, reasonOf } from "../../base/unknown.js";
import {
  ConnectionLimit,
  createAnsweringServer,
  type HttpReply,
  type HttpRequest,
  jsonReply,
} from "../../observe/http-server.js";
import { answerJson, type Route } from "./json-answers.js";
import { isDefaultName } from "./socket-path.js";

/** Commands are few, and each takes at most a second. */
const MAX_CONNECTIONS = 16;
const REQUEST_TIMEOUT_MS = 5_000;
const MAX_HEADER_BYTES = 4_096;
/** Interval between checks that the socket exists, ms. A check is one lstat. */
const CHECK_MS = 2_000;

export class ControlServer {
  readonly #server: Server;
  readonly #checks: BoundedFrequencyRunner;
  /** The file at the path when the socket was created. */
  #socket: Stats | undefined;

  /** @param checkMs interval between checks that the socket exists. */
  constructor(
    private readonly path: string,
    route: Route,
    private readonly log: Logger,
    private readonly checkMs = CHECK_MS,
  ) {
    const frequency = { gapMs: checkMs, maxRetryMs: checkMs };
    this.#checks = new BoundedFrequencyRunner(() => this.#restore(), frequency);
    const limits = { maxHeaderSize: MAX_HEADER_BYTES, requestTimeout: REQUEST_TIMEOUT_MS };
    const options = {
      handler: (request: HttpRequest) => answer(request, route, log),
      onRequestFailed: (error: unknown) => log.error({ err: error }, FAILED),
      connections: new ConnectionLimit(MAX_CONNECTIONS),
    };
    this.#server = createAnsweringServer(options, limits);
  }

  /**
   * Never rejects. If the socket cannot be created, the node is served nevertheless, the log reports the reason, and later
   * checks try again.
   */
  async start(): Promise<void> {
    try {
      await this.#listen();
      this.log.debug({ path: this.path }, "control socket open");
      // In other directories, such names may belong to another program.
      if (isDefaultName(basename(this.path))) await removeStaleSockets(dirname(this.path), this.log);
    } catch (error) {
      const level = error instanceof NotASocket ? "error" : "info";
      this.log[level](
        { path: this.path, reason: reasonOf(error) },
        "no control socket, so `status` and `services` cannot reach the daemon",
      );
    }
    this.#checks.requestIn(this.checkMs);
  }

  async close(): Promise<void> {
    await this.#checks.stop();
    await this.#unlisten();
    const there = await statOf(this.path).catch(() => undefined);
    const isOurs = there?.ino === this.#socket?.ino && there?.dev === this.#socket?.dev;
    if (isOurs) await rm(this.path, { force: true }).catch(() => undefined);
  }

  async #unlisten(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  /** Creates the socket if there was none yet, or if its file was removed. Any other file in its place stays. Never rejects. */
  async #restore(): Promise<WriteOutcome> {
    const first = this.#socket === undefined;
    const outcome = { ok: true, againMs: this.checkMs };
    try {
      if (!first && (await statOf(this.path)) !== undefined) return outcome;
      await this.#unlisten();
      await this.#listen();
      const message = first ? "control socket open" : "control socket was removed; created again";
      this.log.info({ path: this.path }, message);
    } catch (error) {
      this.log.debug({ path: this.path, reason: reasonOf(error) }, "recreating the control socket failed; retrying");
    }
    return outcome;
  }

  async #listen(): Promise<void> {
    await mkdir(dirname(this.path), { recursive: true, mode: 0o700 });
    const there = await statOf(this.path);
    if (there !== undefined && !there.isSocket()) throw new NotASocket();
    // A socket that a killed daemon left refuses connections. If the socket answers, another daemon uses it.
    if ((await answerTo(this.path)) === "connected")
      throw new Error("another daemon of this network namespace uses it");
    // Listen under another name first. When Node closes the socket, it removes this name, even if another file has it by then.
    const name = join(dirname(this.path), `.${process.pid}`);
    await rm(name, { force: true });
    // No other user may open it before its mode is set.
    const before = process.umask(0o177);
    const listening = once(this.#server.listen(name), "listening");
    process.umask(before);
    await listening;
    await chmod(name, 0o600);
    const socket = await lstat(name);
    await rename(name, this.path);
    this.#socket = socket;
  }
}

/** The file at the path is not a socket, so another program may need it. */
class NotASocket extends Error {
  constructor() {
    super("the path has a file that is not a socket. Remove it, or set another path with `--control-socket`");
  }
}

/** Returns undefined if there is no file. */
async function statOf(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path);
  } catch (error) {
    if (isNoEntry(error)) return undefined;
    throw error;
  }
}

/** Returns "connected", or the error code: ECONNREFUSED if nothing listens on the socket. */
async function answerTo(path: string): Promise<string | undefined> {
  const socket = createConnection(path);
  try {
    await once(socket, "connect");
    return "connected";
  } catch (error) {
    return (error as NodeJS.ErrnoException).code;
  } finally {
    socket.destroy();
  }
}

/** Minimum age for removal, ms. The daemon of a younger socket may not listen yet. */
const STALE_MS = 60_000;

/**
 * Removes sockets that killed daemons of other network namespaces left in this directory: those with one of our names
 * that refuse connections. Never rejects.
 */
export async function removeStaleSockets(directory: string, log: Logger, staleMs = STALE_MS): Promise<void> {
  try {
    for (const name of (await readdir(directory)).filter(isDefaultName)) {
      const path = join(directory, name);
      const stat = await lstat(path);
      if (!stat.isSocket() || Date.now() - stat.ctimeMs < staleMs) continue;
      if ((await answerTo(path)) !== "ECONNREFUSED") continue;
      await rm(path, { force: true });
      log.debug({ path }, "socket of a killed daemon removed");
    }
  } catch (error) {
    log.debug({ directory, reason: reasonOf(error) }, "searching for sockets of killed daemons failed");
  }
}

const FAILED = "control request failed";

async function answer({ method, path }: HttpRequest, route: Route, log: Logger): Promise<HttpReply> {
  if (method !== "GET") return refuse(405, "GET only");
  const [, version, ...words] = path.split("/");
  if (version !== "v1") return refuse(404, `no such path: ${path}`);
  try {
    return await answerJson(route, words, refuse);
  } catch (error) {
    log.error({ err: error, path }, FAILED);
    return refuse(500, reasonOf(error));
  }
}

function refuse(status: number, error: string): HttpReply {
  return { ...jsonReply({ error }), status };
}

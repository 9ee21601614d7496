/**
 * A small HTTP server on one address: any method, short answers, and limits that keep a stranger from blocking it. Everyone who
 * can reach the node can reach the health port.
 */
import { once } from "node:events";
import { UserError } from "../base/user-error.js";
import type { IncomingMessage, Server, ServerOptions, ServerResponse } from "node:http";
import { isIP } from "node:net";
import { pipeline } from "node:stream/promises";
import { hostAndPort, withPort } from "../base/ip.js";
import { Backoff, type BackoffOptions } from "../base/backoff.js";
import { type Admission, createGatedServer, type RequestGate } from "../base/request-gate.js";
import { TakingTurns } from "../base/time-slice.js";

export interface ListenAddress {
  /** IP address without brackets. */
  readonly host: string;
  /** 0: the kernel picks one. */
  readonly port: number;
  /** For `::`: leave IPv4 to another listener. Default: false. */
  readonly ipv6Only?: boolean;
  /** Its name in the configuration. */
  readonly name?: string;
}

export interface HttpRequest {
  /** "GET". As with Go's handlers, each handler may check it; most do not, and answer every method alike. */
  readonly method: string;
  /** Without the query, as sent: "/healthz". */
  readonly path: string;
  readonly query: URLSearchParams;
  /** The server that the client addresses, with its port; "" if absent. */
  readonly host: string;
  /** "" if absent. */
  readonly accept: string;
  /** Resolves with the request's body ("" without one), or with undefined if it was cut off or is too long. */
  readonly body: Promise<string | undefined>;
  /** Aborted when the client no longer waits for the answer. */
  readonly signal: AbortSignal;
}

export interface HttpReply {
  readonly status: number;
  /** Content-Type. */
  readonly type: string;
  /** Parts are sent as they come, and produced as the client reads them. */
  readonly body: string | AsyncIterable<string>;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A reply whose body is complete. */
export interface WholeReply extends HttpReply {
  readonly body: string;
}

export type HttpHandler = (request: HttpRequest) => HttpReply | Promise<HttpReply>;

const PLAIN_TEXT = "text/plain; charset=utf-8";
export const JSON_TYPE = "application/json";

export function textReply(status: number, body: string): WholeReply {
  return { status, type: PLAIN_TEXT, body };
}

export function jsonReply(value: unknown): WholeReply {
  return { status: 200, type: JSON_TYPE, body: JSON.stringify(value) };
}

/** Like Go's http.NotFound. */
export const NOT_FOUND: HttpReply = Object.freeze(textReply(404, "404 page not found\n"));

/** Time limit for a request's head, ms. */
const HEADERS_TIMEOUT_MS = 10_000;
/** Time limit for the whole request, including its body, ms. */
const REQUEST_TIMEOUT_MS = 15_000;
/** An idle connection is closed after this time, ms. Longer than any answer takes, including a CPU profile. */
const IDLE_TIMEOUT_MS = 150_000;
/** Probes come seconds apart, and each should find its last connection still open. */
const KEEP_ALIVE_MS = 30_000;
const MAX_HEADER_BYTES = 8 * 1024;
/** A longer body ends the connection. */
const MAX_BODY_BYTES = 16 * 1024;
const MAX_CONNECTIONS = 256;
/** A client that has read nothing of an answer for this long is considered gone, ms. */
const STALLED_MS = 10_000;
/** Waiting requests and answers of all connections together. */
const MAX_PENDING_BYTES = 16 * 1024 * 1024;
const LIMITS = {
  headersTimeout: HEADERS_TIMEOUT_MS,
  requestTimeout: REQUEST_TIMEOUT_MS,
  connectionsCheckingInterval: HEADERS_TIMEOUT_MS,
  keepAliveTimeout: KEEP_ALIVE_MS,
  maxHeaderSize: MAX_HEADER_BYTES,
} as const;
/** Between two attempts to listen, ms; kube-proxy's value. */
const RETRY_MS = 5_000;

/** Reasons in words, by the kernel's error code. */
const REASONS: Readonly<Record<string, string>> = {
  EADDRINUSE: "another program (or another server of nft-proxier) uses this port",
  EADDRNOTAVAIL: "no interface of this node has this address",
  EACCES: "ports below 1024 need CAP_NET_BIND_SERVICE",
  EAFNOSUPPORT: "this kernel has no IPv6",
};

/** An address on which listening is not possible now. */
export class ListenError extends UserError {
  override readonly name = "ListenError";
  /** "EADDRINUSE". */
  readonly code: string;

  constructor(address: ListenAddress, cause: unknown) {
    const { code = "unknown", message }: NodeJS.ErrnoException =
      cause instanceof Error ? cause : new Error(String(cause));
    super(`listening on ${formatListenAddress(address)} failed: ${REASONS[code] ?? message} (${code})`, { cause });
    this.code = code;
  }
}

/** "192.0.2.1:80", "[2001:db8::1]:80". */
function formatListenAddress({ host, port, name }: ListenAddress): string {
  return name ?? withPort(host, port);
}

/**
 * Reads "IP:port", with an IPv6 address in brackets. An unspecified address of either family means every address of both
 * families, as in Go. So probes of kube-proxy's `0.0.0.0:10256` may come over IPv6.
 */
export function parseListenAddress(text: string): ListenAddress {
  const { host: bare, port } = hostAndPort(text);
  if (isIP(bare) === 0 || !/:\d+$/.test(text) || port > 65535) throw new TypeError(`${text} is not IP:port`);
  return { host: bare === "0.0.0.0" ? "::" : bare, port, name: text };
}

/**
 * Limits the connections of one server, or of several together, and the memory that waits for their clients. At the limit of
 * connections, it closes the one that has been idle longest, and serves the new one. If it rejected the new one, a client that
 * opens connections without requests would keep probes out. At the limit of memory, it closes the connection that holds most.
 *
 * A connection is idle unless a complete request head has arrived and its answer has not been handed over. Half a request
 * counts as none, because sending one byte is no work. If no connection is idle, the oldest is closed.
 */
export class ConnectionLimit implements Admission {
  /** Order of requests. */
  readonly turns = new TakingTurns();
  /** Oldest first, with each one's bytes when last measured. */
  readonly #open = new Map<RequestGate, number>();
  /** Longest idle first. */
  readonly #idle = new Set<RequestGate>();
  #pendingBytes = 0;

  constructor(
    private readonly max: number,
    private readonly maxPendingBytes = MAX_PENDING_BYTES,
  ) {}

  accepted(gate: RequestGate): void {
    if (this.#open.size >= this.max) {
      const [victim] = this.#idle.size > 0 ? this.#idle : this.#open.keys();
      if (victim !== undefined) this.#close(victim);
    }
    this.#open.set(gate, 0);
    this.#idle.add(gate);
    gate.once("close", () => this.#forget(gate));
  }

  /** A complete request head has arrived. */
  busy(gate: RequestGate): void {
    this.#idle.delete(gate);
    this.#measure(gate);
  }

  /** Part of the answer was handed over. */
  answering(gate: RequestGate): void {
    this.#measure(gate);
    if (this.#pendingBytes > this.maxPendingBytes) this.#closeLargest(gate);
  }

  /** The request is answered. */
  idle(gate: RequestGate): void {
    this.#measure(gate);
    if (this.#open.has(gate)) this.#idle.add(gate);
  }

  #measure(gate: RequestGate): void {
    const before = this.#open.get(gate);
    if (before === undefined) return;
    const bytes = gate.pendingBytes;
    this.#open.set(gate, bytes);
    this.#pendingBytes += bytes - before;
  }

  /** @param kept is not closed, because its answer has just begun. However long it is, the client gets the chance to read it. */
  #closeLargest(kept: RequestGate): void {
    for (const gate of this.#open.keys()) this.#measure(gate);
    const others = [...this.#open].filter(([gate]) => gate !== kept).sort(([, a], [, b]) => b - a);
    for (const [gate] of others) {
      if (this.#pendingBytes <= this.maxPendingBytes) return;
      this.#close(gate);
    }
  }

  #close(gate: RequestGate): void {
    this.#forget(gate);
    gate.destroy();
  }

  #forget(gate: RequestGate): void {
    this.#pendingBytes -= this.#open.get(gate) ?? 0;
    this.#open.delete(gate);
    this.#idle.delete(gate);
  }
}

interface AnsweringOptions {
  readonly handler: HttpHandler;
  /** Called if the handler fails (the request gets a 500), or if a connection cannot be accepted. */
  readonly onRequestFailed: (error: unknown) => void;
  /** Default: 256 connections for this server alone. */
  readonly connections?: ConnectionLimit;
}

/** Creates a server that answers requests with `handler`. Does not listen. */
export function createAnsweringServer(
  { handler, onRequestFailed, connections = new ConnectionLimit(MAX_CONNECTIONS) }: AnsweringOptions,
  limits: ServerOptions = LIMITS,
): Server {
  const server = createGatedServer(limits, connections, (request, response, gate) => {
    const handedOver = (): void => connections.answering(gate);
    const exchange = { request, response, gate, handedOver, turns: connections.turns };
    answer(exchange, handler).catch((error: unknown) => {
      onRequestFailed(error);
      // A truncated answer must not look complete.
      if (response.headersSent) response.destroy();
      else void send(exchange, textReply(500, "internal error\n"));
    });
  });
  server.on("error", (error) => {
    if (server.listening) onRequestFailed(error);
  });
  return server;
}

interface HttpServerOptions extends AnsweringOptions {
  readonly address: ListenAddress;
  /** Waits between the attempts of `open`. Default: 5 s, as in kube-proxy. */
  readonly retry?: BackoffOptions;
  /** Whether `open` rejects if it fails. Default: more attempts follow. */
  readonly hardFail?: boolean;
  /** Called if listening fails, once per reason, until it succeeds. */
  readonly onFailed?: (error: ListenError) => void;
  readonly onListening?: () => void;
}

/** Listens on one address, with one attempt (`listen`) or until it can (`open`). */
export class HttpServer {
  readonly #server: Server;
  readonly #backoff: Backoff;
  #timer: NodeJS.Timeout | undefined;
  #attempt: Promise<void> | undefined;
  #told: string | undefined;
  #closed = false;

  constructor(private readonly options: HttpServerOptions) {
    this.#backoff = new Backoff(options.retry ?? { firstMs: RETRY_MS, longestMs: RETRY_MS });
    this.#server = createAnsweringServer(options);
    this.#server.setTimeout(IDLE_TIMEOUT_MS);
  }

  /** The port that the kernel picked for 0; undefined while not listening. */
  get port(): number | undefined {
    const address = this.#server.address();
    return typeof address === "object" ? address?.port : undefined;
  }

  /** Why the last attempt of `open` failed; undefined if it did not. */
  get failure(): string | undefined {
    return this.#told;
  }

  /** Makes one attempt. Rejects with a ListenError, and may then be called again. */
  async listen(): Promise<void> {
    const attempt = this.#listen();
    this.#attempt = attempt.catch(() => undefined);
    await attempt;
    if (!this.#closed) this.options.onListening?.();
  }

  /**
   * Resolves after the first attempt, even if it failed. More attempts follow until it listens or is closed. With `hardFail`, a failure rejects
   * with a ListenError.
   */
  async open(): Promise<void> {
    const { hardFail = false, onFailed } = this.options;
    this.#timer = undefined;
    try {
      await this.listen();
      this.#backoff.reset();
      this.#told = undefined;
    } catch (error) {
      if (this.#closed) return;
      const failure = error as ListenError;
      if (!hardFail) this.#timer = setTimeout(() => void this.open(), this.#backoff.next());
      if (failure.message !== this.#told) onFailed?.(failure);
      this.#told = failure.message;
      if (hardFail) throw failure;
    }
  }

  /** Makes the next attempt of `open` at once. */
  retryNow(): void {
    if (this.#timer === undefined) return;
    clearTimeout(this.#timer);
    void this.open();
  }

  /** Frees the port at once, or after an attempt in progress. Ends open connections, even if they wait for an answer. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    // An attempt interrupted by close would never settle.
    if (this.port === undefined) await this.#attempt;
    await new Promise<void>((resolve) => {
      // An error here means that it was not listening.
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }

  async #listen(): Promise<void> {
    const { host, ipv6Only = false } = this.options.address;
    try {
      await this.#bind(host);
    } catch (error) {
      // A kernel without IPv6 cannot listen on all addresses of both families.
      const alone = host === "::" && !ipv6Only && error instanceof ListenError && error.code === "EAFNOSUPPORT";
      if (!alone) throw error;
      await this.#bind("0.0.0.0");
    }
  }

  async #bind(host: string): Promise<void> {
    const { port, ipv6Only = false } = this.options.address;
    try {
      await once(this.#server.listen({ host, port, ipv6Only }), "listening");
    } catch (error) {
      throw new ListenError(this.options.address, error);
    }
  }
}

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly gate: RequestGate;
  /** Called after each part of the answer. */
  readonly handedOver: () => void;
  readonly turns: TakingTurns;
}

async function answer(exchange: Exchange, handler: HttpHandler): Promise<void> {
  const { request } = exchange;
  const body = bodyOf(request);
  const { method = "", url = "", headers } = request;
  // Like Go's server: this asks only whether there is a server at all.
  if (method === "OPTIONS" && url === "*") return send(exchange, textReply(200, ""));
  const target = parseTarget(url);
  if (target === undefined) return send(exchange, textReply(400, "the request's target is not a path\n"));
  const { accept = "", host = "" } = headers;
  const reply = await handler({ ...target, method, host, accept, body, signal: goneSignal(exchange) });
  // Requests that share an answer receive it at the same time.
  await exchange.turns.run(() => undefined);
  await send(exchange, reply);
}

/**
 * Also aborted if the client only ends its side, as Go's request context is: a client that requests something long and leaves
 * only sends that.
 */
function goneSignal({ response, gate }: Exchange): AbortSignal {
  const gone = new AbortController();
  const abort = (): void => gone.abort();
  if (gate.clientEnded) abort();
  gate.once("client-ended", abort);
  response.once("close", () => {
    gate.removeListener("client-ended", abort);
    abort();
  });
  return gone.signal;
}

/** Always reads the body, because the connection's next request follows it. */
function bodyOf(request: IncomingMessage): Promise<string | undefined> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    let length = 0;
    request.on("data", (part: Buffer) => {
      length += part.length;
      if (length > MAX_BODY_BYTES) request.destroy();
      else parts.push(part);
    });
    request.once("end", () => resolve(Buffer.concat(parts).toString()));
    request.once("error", () => resolve(undefined)).once("close", () => resolve(undefined));
  });
}

/** "/path?query", or an absolute URL as sent by proxies. */
function parseTarget(target: string): { path: string; query: URLSearchParams } | undefined {
  if (target.startsWith("/")) {
    const at = target.indexOf("?");
    if (at < 0) return { path: target, query: new URLSearchParams() };
    return { path: target.slice(0, at), query: new URLSearchParams(target.slice(at + 1)) };
  }
  const url = URL.parse(target);
  return url?.host ? { path: url.pathname, query: url.searchParams } : undefined;
}

/** Rejects if parts of the body cannot be produced. A client that leaves before the end is not a failure. */
async function send({ request, response, handedOver }: Exchange, reply: HttpReply): Promise<void> {
  const { status, type, body, headers } = reply;
  const isWhole = typeof body === "string";
  response.setTimeout(STALLED_MS);
  response.writeHead(status, {
    "Content-Type": type,
    "X-Content-Type-Options": "nosniff",
    ...(isWhole && { "Content-Length": Buffer.byteLength(body) }),
    ...headers,
  });
  if (request.method === "HEAD") return void response.end();
  if (isWhole) {
    response.end(body);
    return handedOver();
  }
  try {
    await pipeline(body, measured(handedOver), response);
  } catch (error) {
    if (!response.destroyed || response.errored) throw error;
  }
}

function measured(handedOver: () => void): (parts: AsyncIterable<string>) => AsyncGenerator<string> {
  return async function* (parts) {
    for await (const part of parts) {
      yield part;
      handedOver();
    }
  };
}

/**
 * A small HTTP server on one address: any method, short answers, and limits that keep a stranger from tying it up. The
 * health port is open to everybody who can reach the node.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { isIP, isIPv6 } from "node:net";
import { ConnectionLimit } from "./connection-limit.js";

/** Where to listen. */
export interface ListenAddress {
  /** IP address without brackets. */
  readonly host: string;
  /** 0: the kernel picks one. */
  readonly port: number;
  /** Of `::`: IPv4 is another listener's. Default: no. */
  readonly ipv6Only?: boolean;
  /** What it is called in the configuration. */
  readonly name?: string;
}

export interface HttpRequest {
  /** "GET". As with Go's handlers it is up to each to ask; most do not, and answer every method alike. */
  readonly method: string;
  /** Without the query, as it was sent: "/healthz". */
  readonly path: string;
  readonly query: URLSearchParams;
  /** "" when there is none. */
  readonly accept: string;
  /** Resolves with the request's body, "" when there is none; undefined when it broke off or is too long. */
  readonly body: Promise<string | undefined>;
  /** Aborted when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
}

export interface HttpReply {
  readonly status: number;
  /** Content-Type. */
  readonly type: string;
  readonly body: string;
  readonly headers?: Readonly<Record<string, string>>;
}

export type HttpHandler = (request: HttpRequest) => HttpReply | Promise<HttpReply>;

const PLAIN_TEXT = "text/plain; charset=utf-8";
export const JSON_TYPE = "application/json";

export function textReply(status: number, body: string): HttpReply {
  return { status, type: PLAIN_TEXT, body };
}

export function jsonReply(value: unknown): HttpReply {
  return { status: 200, type: JSON_TYPE, body: JSON.stringify(value) };
}

/** As Go's http.NotFound. */
export const NOT_FOUND: HttpReply = Object.freeze(textReply(404, "404 page not found\n"));

/** The head of a request must be in by then, ms. */
const HEADERS_TIMEOUT_MS = 10_000;
/** The whole of it, its body included. */
const REQUEST_TIMEOUT_MS = 15_000;
/** A connection on which nothing moves is closed; longer than any answer takes, a CPU profile included. */
const IDLE_TIMEOUT_MS = 150_000;
/** Probes come seconds apart: each may find its last connection still open. */
const KEEP_ALIVE_MS = 30_000;
const MAX_HEADER_BYTES = 8 * 1024;
/** A longer body ends the connection. */
const MAX_BODY_BYTES = 16 * 1024;
const MAX_CONNECTIONS = 256;

/** What went wrong in words, by the kernel's. */
const REASONS: Readonly<Record<string, string>> = {
  EADDRINUSE: "another program (or another of our servers) has this port",
  EADDRNOTAVAIL: "no interface of this node has this address",
  EACCES: "ports below 1024 need CAP_NET_BIND_SERVICE",
  EAFNOSUPPORT: "this kernel has no IPv6",
};

/** An address that cannot be listened on now. */
export class ListenError extends Error {
  /** "EADDRINUSE". */
  readonly code: string;

  constructor(address: ListenAddress, cause: unknown) {
    const { code = "unknown", message }: NodeJS.ErrnoException =
      cause instanceof Error ? cause : new Error(String(cause));
    super(`cannot listen on ${formatListenAddress(address)}: ${REASONS[code] ?? message} (${code})`, { cause });
    this.name = "ListenError";
    this.code = code;
  }
}

/** "192.0.2.1:80", "[2001:db8::1]:80". */
function formatListenAddress({ host, port, name }: ListenAddress): string {
  return name ?? (isIPv6(host) ? `[${host}]:${port}` : `${host}:${port}`);
}

/**
 * Reads "IP:port", an IPv6 address in brackets. An unspecified address, of either family, means every address of the
 * node, of both: that is what Go makes of it, so probes of kube-proxy's `0.0.0.0:10256` may come over IPv6.
 */
export function parseListenAddress(text: string): ListenAddress {
  const at = text.lastIndexOf(":");
  const bare = text.slice(0, at).replace(/^\[(.*)\]$/, "$1");
  const port = Number(text.slice(at + 1));
  if (isIP(bare) === 0 || !/:\d+$/.test(text) || port > 65535) throw new TypeError(`${text} is not IP:port`);
  return { host: bare === "0.0.0.0" ? "::" : bare, port, name: text };
}

/** One attempt to listen, and what is served then. */
export class HttpListener {
  readonly #server: Server;
  readonly #address: ListenAddress;

  /**
   * @param failed gets the errors of the handler and of accepting connections; requests meanwhile get a 500.
   * @param connections by default 256, of this server alone.
   */
  constructor(
    address: ListenAddress,
    handler: HttpHandler,
    failed: (error: unknown) => void,
    connections = new ConnectionLimit(MAX_CONNECTIONS),
  ) {
    this.#address = address;
    this.#server = createServer(
      {
        headersTimeout: HEADERS_TIMEOUT_MS,
        requestTimeout: REQUEST_TIMEOUT_MS,
        connectionsCheckingInterval: HEADERS_TIMEOUT_MS,
        keepAliveTimeout: KEEP_ALIVE_MS,
        maxHeaderSize: MAX_HEADER_BYTES,
      },
      (request, response) => {
        connections.busy(request.socket);
        response.once("close", () => connections.idle(request.socket));
        answer(request, response, handler).catch((error: unknown) => {
          failed(error);
          if (response.headersSent) response.destroy();
          else send(request, response, textReply(500, "internal error\n"));
        });
      },
    );
    this.#server.setTimeout(IDLE_TIMEOUT_MS);
    this.#server.on("connection", (socket) => connections.accepted(socket));
    this.#server.on("error", (error) => {
      if (this.#server.listening) failed(error);
    });
  }

  /** Resolves when it listens, rejects with a ListenError when it cannot; then it may be tried again. */
  async listen(): Promise<void> {
    try {
      await this.#bind(this.#address.host);
    } catch (error) {
      const { host, ipv6Only = false } = this.#address;
      // A kernel without IPv6 has no "all addresses of both families".
      const alone = host === "::" && !ipv6Only && error instanceof ListenError && error.code === "EAFNOSUPPORT";
      if (!alone) throw error;
      await this.#bind("0.0.0.0");
    }
  }

  /** The port that the kernel picked for 0; undefined while it does not listen. */
  get port(): number | undefined {
    const address = this.#server.address();
    return typeof address === "object" ? address?.port : undefined;
  }

  /** The port is free at once; open connections end, whatever they wait for. Not while `listen` is under way. */
  async close(): Promise<void> {
    await new Promise<void>((resolve) => {
      // An error here says that it did not listen.
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }

  async #bind(host: string): Promise<void> {
    const { port, ipv6Only = false } = this.#address;
    await new Promise<void>((resolve, reject) => {
      const fail = (error: NodeJS.ErrnoException): void => {
        this.#server.removeListener("listening", done);
        reject(new ListenError(this.#address, error));
      };
      const done = (): void => {
        this.#server.removeListener("error", fail);
        resolve();
      };
      this.#server.once("error", fail).once("listening", done).listen({ host, port, ipv6Only });
    });
  }
}

async function answer(request: IncomingMessage, response: ServerResponse, handler: HttpHandler): Promise<void> {
  const body = bodyOf(request);
  const { method = "", url = "", headers } = request;
  // As Go's server: the question is whether there is a server at all.
  if (method === "OPTIONS" && url === "*") return send(request, response, textReply(200, ""));
  const target = parseTarget(url);
  if (target === undefined) return send(request, response, textReply(400, "the request's target is no path\n"));
  const gone = new AbortController();
  response.once("close", () => gone.abort());
  const { accept = "" } = headers;
  send(request, response, await handler({ ...target, method, accept, body, signal: gone.signal }));
}

/** Reads it whether the handler wants it or not: the connection's next request comes after it. */
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

/** "/path?query", or an absolute URL as proxies send it. */
function parseTarget(target: string): { path: string; query: URLSearchParams } | undefined {
  if (target.startsWith("/")) {
    const at = target.indexOf("?");
    if (at < 0) return { path: target, query: new URLSearchParams() };
    return { path: target.slice(0, at), query: new URLSearchParams(target.slice(at + 1)) };
  }
  const url = URL.parse(target);
  return url?.host ? { path: url.pathname, query: url.searchParams } : undefined;
}

function send(request: IncomingMessage, response: ServerResponse, reply: HttpReply): void {
  response.writeHead(reply.status, {
    "Content-Type": reply.type,
    "X-Content-Type-Options": "nosniff",
    "Content-Length": Buffer.byteLength(reply.body),
    ...reply.headers,
  });
  response.end(request.method === "HEAD" ? undefined : reply.body);
}

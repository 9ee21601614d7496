/** Requests to the API server: HTTP/1.1, one connection per watch, reuse of idle ones. */
import type { Agent, ClientRequest, IncomingMessage } from "node:http";
import type { RequestOptions } from "node:https";
import { pipeline, type Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { network } from "../../base/http.js";
import type { BodyFormat } from "./bodies.js";
import { describeFailure, ProtocolError, StalledError, StatusError, statusError, TransportError } from "./errors.js";
import { PROTOBUF, readObject } from "./protobuf-objects.js";
import { RateLimit } from "./rate-limit.js";
import { pause } from "./timing.js";

/** A request's identification, and the connections that it uses. */
export interface RequestCredentials {
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly agent: Agent;
}

/** Our identity towards the API server. */
export interface Credentials {
  /** For the next request; rotating credentials are read again. Rejects with the reason if there are none. */
  next(): Promise<RequestCredentials>;
  /** The server does not accept our identity: cached credentials are not used again. */
  refused(): void;
  /** Closes idle connections. */
  close(): void;
}

/** One request, for metrics like client-go's. */
export interface RequestReport {
  /** HTTP status, or "<error>" if there was no answer. */
  readonly code: string;
  /** "GET", "POST", ... */
  readonly method: string;
  /** The same as `method`, under the name that client-go uses for durations. */
  readonly verb: string;
  /** Host and port of the server. */
  readonly host: string;
  /** Time until the answer was complete; undefined for watches, which client-go counts but does not measure. */
  readonly seconds: number | undefined;
}

interface ConnectionOptions {
  /** Includes a path if the API is below one. */
  readonly server: URL;
  readonly credentials: Credentials;
  /** clientConnection.qps and .burst. */
  readonly qps: number;
  readonly burst: number;
  readonly onRequest?: (report: RequestReport) => void;
}

interface ApiRequest {
  readonly method: "GET" | "POST" | "PATCH";
  /** Absolute, with its query. */
  readonly path: string;
  readonly body?: { readonly type: string; readonly text: string };
  readonly signal: AbortSignal;
  /** The request fails if no part of the answer arrives for this long, ms. */
  readonly idleMs: number;
  /**
   * A further page of a list. For the rate limit it counts as one request with the first, because kube-proxy gets a list in one
   * request.
   */
  readonly continued?: boolean;
  readonly watch?: boolean;
  /** Whether the caller reads protobuf. The server may still answer with JSON. Default false. */
  readonly protobuf?: boolean;
  /** Called when a successful answer begins. */
  readonly onAnswer?: (format: BodyFormat) => void;
}

/** Maximum bytes to read of an error answer. */
const MAX_STATUS_BYTES = 64 * 1024;

/** Decompressed bytes at once. Each time takes two changes of the thread. */
const GUNZIP_BYTES = 64 * 1024;

/** Our name in the API server's audit logs. */
const USER_AGENT = "nft-proxier";

export class ApiConnection {
  readonly #limit: RateLimit;
  readonly #basePath: string;
  /** Whether no proxy in between has refused protobuf. */
  #protobuf = true;

  constructor(private readonly options: ConnectionOptions) {
    this.#limit = new RateLimit(options.qps, options.burst);
    this.#basePath = options.server.pathname.replace(/\/+$/, "");
  }

  /** For display: "https://10.0.0.1:6443". */
  get server(): string {
    return this.options.server.href.replace(/\/+$/, "");
  }

  /**
   * The body of a successful answer, as it arrives. The call and the body can fail with `TransportError`, `StatusError` or
   * `ProtocolError`. Ends the connection if the caller stops reading early.
   */
  async *stream(request: ApiRequest): AsyncGenerator<Buffer, void, undefined> {
    const started = performance.now();
    const guard = new Guard(request);
    let code = "<error>";
    try {
      const response = await this.#send(request, guard);
      code = String(response.statusCode);
      if (isSuccess(response)) request.onAnswer?.(formatOf(response));
      if (response.statusCode === 401) this.options.credentials.refused();
      yield* this.#body(response, guard);
    } catch (error) {
      throw this.#failure(guard.reason ?? error);
    } finally {
      guard.close();
      const { method } = request;
      const seconds = request.watch === true ? undefined : (performance.now() - started) / 1000;
      this.options.onRequest?.({ code, method, verb: method, host: this.options.server.host, seconds });
    }
  }

  /** Sends a small request, and discards the answer's body. */
  async send(request: ApiRequest): Promise<void> {
    const answer = this.stream(request);
    while (!(await answer.next()).done);
  }

  close(): void {
    this.options.credentials.close();
  }

  async #send(request: ApiRequest, guard: Guard): Promise<IncomingMessage> {
    if (request.continued !== true) await pause(this.#limit.reserve(), request.signal);
    const credentials = await guard.within(this.#credentials());
    for (;;) {
      try {
        const asked = this.#asksForProtobuf(request);
        const response = await this.#once(request, credentials, guard);
        if (!asked || ![406, 415].includes(response.statusCode ?? 0)) return response;
        this.#protobuf = false;
        response.resume();
      } catch (error) {
        // The server closed an idle connection just before we used it, and a new one may work. The loop ends, because the
        // number of idle connections is limited. Giving a request up also ends its connection.
        if (guard.reason !== undefined || !(error instanceof StaleConnection)) throw error;
      }
    }
  }

  #asksForProtobuf({ protobuf }: ApiRequest): boolean {
    return this.#protobuf && protobuf === true;
  }

  async #credentials(): Promise<RequestCredentials> {
    try {
      return await this.options.credentials.next();
    } catch (error) {
      throw new TransportError(`no credentials: ${describeFailure(error)}`, { cause: error });
    }
  }

  #once(request: ApiRequest, { headers, agent }: RequestCredentials, guard: Guard): Promise<IncomingMessage> {
    const { server } = this.options;
    const options: RequestOptions = {
      protocol: server.protocol,
      hostname: server.hostname.replace(/^\[(.*)\]$/, "$1"),
      port: server.port === "" ? undefined : Number(server.port),
      path: `${this.#basePath}${request.path}`,
      method: request.method,
      agent,
      headers: {
        Accept: this.#asksForProtobuf(request) ? `${PROTOBUF}, application/json` : "application/json",
        "User-Agent": USER_AGENT,
        // No compression for watches: it would delay single events.
        ...(request.watch !== true && { "Accept-Encoding": "gzip" }),
        ...(request.body !== undefined && {
          "Content-Type": request.body.type,
          "Content-Length": Buffer.byteLength(request.body.text),
        }),
        ...headers,
      },
    };
    return new Promise((resolve, reject) => {
      const sent = (server.protocol === "https:" ? network.https : network.http).request(options);
      guard.watch(sent);
      sent.on("response", (response) => {
        // The response can fail before or after it is read. Reading it reports the failure.
        response.on("error", () => undefined);
        resolve(response);
      });
      sent.on("error", (error) => {
        reject(isStale(sent, error) ? new StaleConnection(error.message, { cause: error }) : error);
      });
      sent.end(request.body?.text);
    });
  }

  async *#body(response: IncomingMessage, guard: Guard): AsyncGenerator<Buffer, void, undefined> {
    const success = isSuccess(response);
    const refused: Buffer[] = [];
    let refusedBytes = 0;
    for await (const chunk of decoded(response) as AsyncIterable<Buffer>) {
      guard.alive();
      if (success) yield chunk;
      else if ((refusedBytes += chunk.length) <= MAX_STATUS_BYTES) refused.push(chunk);
      else break;
    }
    if (success) return;
    const { statusCode = 0, headers } = response;
    const body = errorBody(response, Buffer.concat(refused));
    if (statusCode >= 400) throw statusError(statusCode, body, headers["retry-after"]);
    throw new ProtocolError(`HTTP ${statusCode} is not an answer of an API server`);
  }

  #failure(error: unknown): Error {
    if (error instanceof StatusError || error instanceof ProtocolError || error instanceof TransportError) return error;
    return new TransportError(describeFailure(error), { cause: error });
  }
}

/**
 * Gives a request up if it is aborted, or if nothing arrives for too long. The request is destroyed without an error: in some
 * states Node removes the socket's error listener, and the error would end the process.
 */
class Guard {
  #idle: NodeJS.Timeout | undefined;
  #sent: ClientRequest | undefined;
  #reason: Error | undefined;
  #lose: (reason: Error) => void = () => undefined;

  constructor(private readonly request: ApiRequest) {
    request.signal.addEventListener("abort", this.#aborted);
  }

  /** Why the request was given up; undefined if it was not. */
  get reason(): Error | undefined {
    return this.#reason;
  }

  /** Settles like `step`, unless the request is given up before. */
  async within<T>(step: Promise<T>): Promise<T> {
    this.alive();
    if (this.request.signal.aborted) this.#aborted();
    const lost = new Promise<never>((_, reject) => {
      this.#lose = reject;
      if (this.#reason !== undefined) reject(this.#reason);
    });
    return Promise.race([step, lost]);
  }

  watch(sent: ClientRequest): void {
    this.#sent = sent;
    this.alive();
    // `#give` ran before and will not destroy this request.
    if (this.#reason !== undefined) sent.destroy();
  }

  /** Restarts the time limit. */
  alive(): void {
    const { idleMs } = this.request;
    if (this.#idle === undefined) this.#idle = setTimeout(() => this.#give(new StalledError(idleMs)), idleMs);
    else this.#idle.refresh();
  }

  close(): void {
    clearTimeout(this.#idle);
    this.request.signal.removeEventListener("abort", this.#aborted);
  }

  readonly #aborted = (): void => this.#give(new TransportError("cancelled: the program is exiting"));

  #give(reason: Error): void {
    this.#reason ??= reason;
    this.#lose(this.#reason);
    this.#sent?.destroy();
  }
}

function isSuccess({ statusCode = 0 }: IncomingMessage): boolean {
  return statusCode >= 200 && statusCode < 300;
}

function formatOf({ headers }: IncomingMessage): BodyFormat {
  return headers["content-type"]?.startsWith(PROTOBUF) === true ? "protobuf" : "JSON";
}

/** The Status object or text of an error answer. Returns undefined if it cannot be read. */
function errorBody(response: IncomingMessage, bytes: Buffer): unknown {
  if (formatOf(response) === "JSON") return bytes.toString();
  try {
    return readObject(bytes);
  } catch {
    return undefined;
  }
}

/** A reused connection turned out to be closed. */
class StaleConnection extends Error {}

function isStale(sent: ClientRequest, error: NodeJS.ErrnoException): boolean {
  return sent.reusedSocket && (error.code === "ECONNRESET" || error.code === "EPIPE");
}

function decoded(response: IncomingMessage): Readable {
  if (response.headers["content-encoding"] !== "gzip") return response;
  // If either stream fails or is left, the other one ends too.
  return pipeline(response, createGunzip({ chunkSize: GUNZIP_BYTES }), () => undefined);
}

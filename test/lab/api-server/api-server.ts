/**
 * A test double of kube-apiserver 1.36 for tests and benchmarks. It speaks the wire protocol over real sockets; calls put and delete its
 * objects and make it fail on demand.
 *
 *     const api = await ApiServer.start();                      // http://127.0.0.1:<port>; `tls: {}` for https
 *     api.put({ kind: "Service", metadata: { namespace: "a", name: "b" }, spec: { ... } });
 *     api.delete("Service", "a/b");
 *     await writeFile(path, api.kubeconfig());                  // or --master=api.url
 *     await api.stop();
 *
 * It serves Services, EndpointSlices, Nodes, ServiceCIDRs and (posted by the client) events.k8s.io/v1 Events:
 * - lists with `limit` and `continue` over one snapshot, label and field selectors;
 * - watches with resourceVersion, timeoutSeconds, allowWatchBookmarks and sendInitialEvents;
 * - protobuf for clients that accept it, gzip, GET of one object, /version, discovery, health.
 *
 * Objects get uid, creationTimestamp, resourceVersion and managedFields, as real ones do. Nothing is validated or defaulted. Unless
 * `allowAll` is set, only the requests that ClusterRole system:node-proxier allows are allowed.
 *
 * Ways to interfere (all take effect at once):
 *
 *     api.fail({ resource: "services", verb: "list", times: 2 }, { status: 429, headers: { "Retry-After": "1" } });
 *     api.fail({ verb: "list", continued: true, times: 1 }, { status: 410 });   // or hang, reset, cutAfter, pace
 *     api.compact();                              // history gone: old watches and continue tokens get 410
 *     for (const watch of await api.watching("services")) watch.cut({ midLine: true }); // or end(), stall(), error(410), raw(), bookmark()
 *     await api.down(); await api.up();           // connections refused, then the same port again
 *     api.tokens.clear(); api.tokens.add("new");  // Bearer tokens that count; empty: none is needed
 *
 * Records: `api.requests` (method, path, query, status) and `api.events`.
 */
import { EventEmitter, once } from "node:events";
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { Authority, type Certificate, type CertificateOptions } from "./certificates.ts";
import { answerDiscovery } from "./discovery.ts";
import { eventFaults } from "./events.ts";
import { freePort } from "../ports.ts";
import { Fault, type FaultEffect, type FaultTarget, type StatusEffect } from "./faults.ts";
import { answerList } from "./lists.ts";
import { encodeObject } from "./protobuf.ts";
import { type ApiRequest, readRequest } from "./requests.ts";
import { apiVersionOf, isAllowed, type KubeJson } from "./resources.ts";
import { BadRequest } from "./selectors.ts";
import { statusFor, statusObject, type StatusFields } from "./status.ts";
import { type Backup, Store } from "./store.ts";
import { Watch } from "./watches.ts";
import { type Pace, Wire } from "./wire.ts";

export { Authority, type Certificate } from "./certificates.ts";
export type { Fault, FaultEffect, FaultTarget } from "./faults.ts";
export type { KubeJson } from "./resources.ts";
export type { Watch } from "./watches.ts";

export interface ApiServerOptions {
  /** Default 127.0.0.1. */
  readonly host?: string;
  /** Default: a free port. */
  readonly port?: number;
  /** Use TLS. By default the certificate is for `host` and localhost, issued by a new authority whose certificate is `api.ca`. */
  readonly tls?: Partial<CertificateOptions>;
  /** Accepted bearer tokens. Default: no token is needed. A client certificate of the authority is accepted, too. */
  readonly tokens?: readonly string[];
  /** Allow every verb, for kubectl. Default: only those of system:node-proxier. */
  readonly allowAll?: boolean;
  /** Give objects managedFields. Default true. */
  readonly managedFields?: boolean;
  /** Time between bookmarks, ms. Default 60,000, as on a real server. */
  readonly bookmarkEveryMs?: number;
  /** Resources that this server does not know, like older servers: "servicecidrs". */
  readonly without?: readonly string[];
  /** Objects per page at most. Default: as many as the client asks for. */
  readonly maxPage?: number;
  /** Answer with JSON only. Objects that protobuf cannot express need it. */
  readonly json?: boolean;
}

export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingMessage["headers"];
  /** Time of arrival, ms of performance.now(). */
  readonly at: number;
  /** 0 until there is an answer. */
  status: number;
}

const PROTOBUF = "application/vnd.kubernetes.protobuf";
const JSON_TYPE = "application/json";
/** The server compresses bodies larger than this. */
const GZIP_FROM = 128 * 1024;
const gzipped = promisify(gzip);

export class ApiServer {
  readonly tokens: Set<string>;
  readonly requests: SeenRequest[] = [];
  /** Issues further certificates that this server accepts; absent without TLS. */
  readonly authority: Authority | undefined;
  readonly #options: ApiServerOptions;
  readonly #store: Store;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #watches = new Set<Watch>();
  readonly #opened = new EventEmitter();
  readonly #faults: Fault[] = [];
  #bookmarks: NodeJS.Timeout | undefined;
  #port: number | undefined;

  private constructor(options: ApiServerOptions) {
    this.#options = options;
    this.#port = options.port;
    this.tokens = new Set(options.tokens);
    this.#store = new Store({ managedFields: options.managedFields ?? true });
    this.#store.onChange((change) => {
      for (const watch of this.#watches) watch.change(change);
    });
    const listener: RequestListener = (request, response) => {
      this.#handle(request, response).catch((error: unknown) => {
        // The double itself failed: let the client show it to the test.
        if (response.headersSent) response.destroy();
        else sendStatus(response, statusFor(500, `the double failed: ${String(error)}`));
      });
    };
    if (options.tls === undefined) {
      this.#server = createServer(listener);
    } else {
      this.authority = new Authority();
      const { cert, key } = this.#certificate(this.authority, options.tls);
      const tls = { cert, key, ca: this.authority.cert, requestCert: true, rejectUnauthorized: false };
      this.#server = createTlsServer({ ...tls, ALPNProtocols: ["http/1.1"] }, listener);
    }
    this.#server.keepAliveTimeout = 0;
    this.#server.requestTimeout = 0;
    this.#server.on("connection", (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
      socket.on("error", () => undefined);
    });
  }

  static async start(options: ApiServerOptions = {}): Promise<ApiServer> {
    const server = new ApiServer(options);
    await server.up();
    return server;
  }

  get url(): string {
    const { host = "127.0.0.1", tls } = this.#options;
    return `${tls === undefined ? "http" : "https"}://${host.includes(":") ? `[${host}]` : host}:${this.#port}`;
  }

  /** PEM of the authority; "" without TLS. */
  get ca(): string {
    return this.authority?.cert ?? "";
  }

  /** The newest resourceVersion. */
  get revision(): number {
    return this.#store.revision;
  }

  /** Events that clients posted, in their last patched state. */
  get events(): readonly KubeJson[] {
    return this.#store.list(EVENTS).map(({ object }) => object);
  }

  /**
   * Returns a kubeconfig (JSON is YAML) for this server. `user` is the file's field; the default is the first token.
   */
  kubeconfig(user?: Readonly<Record<string, unknown>>): string {
    const [token] = this.tokens;
    const authority = { "certificate-authority-data": Buffer.from(this.ca).toString("base64") };
    return JSON.stringify({
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name: "default", cluster: { server: this.url, ...(this.ca !== "" && authority) } }],
      users: [{ name: "default", user: user ?? (token === undefined ? {} : { token }) }],
      contexts: [{ name: "default", context: { cluster: "default", user: "default" } }],
      "current-context": "default",
    });
  }

  /**
   * Creates or replaces an object; returns its resourceVersion. Throws `NotOfTheApi` for an object that protobuf cannot express,
   * unless the server answers with JSON only.
   */
  put(object: KubeJson): string {
    const stored = this.#store.put(object);
    if (this.#options.json !== true && stored.resource !== EVENTS) void stored.message;
    return String(stored.revision);
  }

  /** `name` is "namespace/name", or only the name. Returns false if there is no such object. */
  delete(kind: string, name: string): boolean {
    return this.#store.delete(kind, name);
  }

  /** Changes the answers to matching requests from now on. Later calls take precedence. */
  fail(target: FaultTarget, effect: FaultEffect): Fault {
    const fault = new Fault(target, effect);
    this.#faults.unshift(fault);
    return fault;
  }

  /** Open watches of one resource ("services") or of all. */
  watches(resource?: string): Watch[] {
    return [...this.#watches].filter((watch) => resource === undefined || watch.resource.plural === resource);
  }

  /** Resolves with the open watches of a resource when there are any; rejects after 15 s. */
  async watching(resource: string): Promise<Watch[]> {
    const deadline = AbortSignal.timeout(15_000);
    for (let open = this.watches(resource); ; open = this.watches(resource)) {
      if (open.length > 0) return open;
      if (deadline.aborted) throw new Error(`no client watches ${resource}`);
      await once(this.#opened, "watch", { signal: deadline }).catch(() => undefined);
    }
  }

  /**
   * Forgets all history: watches from an earlier resourceVersion and continue tokens get 410. Open watches continue.
   */
  compact(): void {
    this.#store.compact();
  }

  /** Copies all objects, like a backup of etcd. */
  backup(): Backup {
    return this.#store.backup();
  }

  /** Returns to a backup while the server is down: resourceVersions go back, and later watches from the future hear nothing. */
  restore(backup: Backup): void {
    this.#store.restore(backup);
  }

  /** Increases the resourceVersion without changing any served object. */
  advance(by = 1): void {
    this.#store.advance(by);
  }

  /** Accepts connections (again), on the same port. */
  async up(): Promise<void> {
    const { host = "127.0.0.1" } = this.#options;
    // Do not use an ephemeral port: the kernel would assign it to another socket while the server is down.
    const port = (this.#port ??= await freePort(host));
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(port, host, () => {
        this.#server.off("error", reject);
        resolve();
      });
    });
    this.#bookmarks = setInterval(() => {
      for (const watch of this.#watches) watch.bookmark();
    }, this.#options.bookmarkEveryMs ?? 60_000);
  }

  /** Breaks all connections and refuses new ones. The objects stay. */
  async down(): Promise<void> {
    clearInterval(this.#bookmarks);
    for (const watch of this.#watches) watch.close();
    this.#watches.clear();
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  async stop(): Promise<void> {
    if (this.#server.listening) await this.down();
  }

  #certificate(authority: Authority, options: Partial<CertificateOptions>): Certificate {
    const hosts = ["localhost", "127.0.0.1", "::1"];
    return authority.server({ commonName: "kube-apiserver", hosts, ...options });
  }

  async #handle(message: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(message.url ?? "/", "http://double");
    const { pathname: path, searchParams: query } = url;
    if (this.#options.json === true) message.headers.accept = JSON_TYPE;
    const { method = "", headers } = message;
    const seen: SeenRequest = { method, path, query, headers, at: performance.now(), status: 0 };
    this.requests.push(seen);
    response.on("finish", () => (seen.status = response.statusCode));
    response.on("error", () => undefined);
    if (!this.#knows(message)) return sendStatus(response, statusFor(401));
    const request = readRequest(seen.method, url);
    if (request === undefined || this.#options.without?.includes(request.resource.plural) === true) {
      return sendDiscovery(response, request === undefined ? path : "");
    }
    const { verb, resource } = request;
    const effect: FaultEffect | Effect = this.#faults.find((fault) => fault.meets(verb, resource, query))?.effect ?? {};
    if ("hang" in effect) return;
    if ("reset" in effect) return void message.socket.destroy();
    if ("status" in effect) return sendFault(response, effect);
    if (this.#options.allowAll !== true && !isAllowed(verb, resource)) return sendStatus(response, forbidden(request));
    try {
      await this.#answer(request, message, response, effect);
    } catch (error) {
      if (!(error instanceof BadRequest)) throw error;
      sendStatus(response, statusFor(400, error.message));
    }
  }

  #knows(message: IncomingMessage): boolean {
    if (this.tokens.size === 0) return true;
    if ((message.socket as Partial<TLSSocket>).authorized === true) return true;
    const [, token] = /^Bearer (.+)$/.exec(message.headers.authorization ?? "") ?? [];
    return token !== undefined && this.tokens.has(token);
  }

  async #answer(
    request: ApiRequest,
    message: IncomingMessage,
    response: ServerResponse,
    effect: Effect,
  ): Promise<void> {
    switch (request.verb) {
      case "list":
        return this.#list(request, message, response, effect);
      case "watch":
        return this.#watch(request, response, effect.pace);
      case "get": {
        const stored = this.#store.get(request.resource, keyFor(request));
        if (stored === undefined) return sendStatus(response, notFound(request));
        return sendJson(response, 200, stored.object);
      }
      case "create":
      case "update":
      case "patch":
        return this.#write(request, message, response);
      case "delete":
        if (!this.delete(request.resource.kind, keyFor(request))) return sendStatus(response, notFound(request));
        return sendJson(response, 200, { kind: "Status", apiVersion: "v1", metadata: {}, status: "Success" });
    }
  }

  async #list(request: ApiRequest, message: IncomingMessage, response: ServerResponse, effect: Effect): Promise<void> {
    const answer = answerList(this.#store, request, acceptsProtobuf(response), this.#options.maxPage);
    if ("status" in answer) return sendStatus(response, answer.status);
    let { body } = answer;
    const headers: Record<string, string> = { "Content-Type": acceptsProtobuf(response) ? PROTOBUF : JSON_TYPE };
    if (body.length > GZIP_FROM && (message.headers["accept-encoding"] ?? "").includes("gzip")) {
      body = await gzipped(body, { level: 1 });
      headers["Content-Encoding"] = "gzip";
      headers["Vary"] = "Accept-Encoding";
    }
    response.writeHead(200, headers);
    const wire = new Wire(response, effect.pace);
    const { cutAfter } = effect;
    if (cutAfter !== undefined) {
      wire.write(body.subarray(0, cutAfter));
      return wire.cut();
    }
    wire.write(body);
    wire.end();
  }

  #watch(request: ApiRequest, response: ServerResponse, pace: Pace | undefined): void {
    const protobuf = acceptsProtobuf(response);
    const watch = new Watch(this.#store, request, new Wire(response, pace), protobuf);
    const type = protobuf ? `${PROTOBUF};stream=watch` : JSON_TYPE;
    response.writeHead(200, { "Content-Type": type, "Cache-Control": "no-cache, private" });
    response.flushHeaders();
    if (!watch.begin()) return;
    this.#watches.add(watch);
    this.#opened.emit("watch");
    response.on("close", () => {
      watch.close();
      this.#watches.delete(watch);
    });
  }

  async #write(request: ApiRequest, message: IncomingMessage, response: ServerResponse): Promise<void> {
    const { resource, verb } = request;
    const sent = JSON.parse(await textOf(message)) as KubeJson;
    const key = verb === "create" ? `${request.namespace}/${sent.metadata.name}` : keyFor(request);
    const present = this.#store.get(resource, key);
    if (verb === "create" && present !== undefined) {
      return sendStatus(response, statusFor(409, `${resource.plural} "${sent.metadata.name}" already exists`));
    }
    if (verb !== "create" && present === undefined) return sendStatus(response, notFound(request));
    const type = message.headers["content-type"] ?? "";
    if (verb === "patch" && !/^application\/(strategic-)?merge-patch\+json$/.test(type)) {
      return sendStatus(response, statusFor(415, `the body of the request was in an unknown format: ${type}`));
    }
    const object = verb === "patch" ? { ...present!.object, ...sent, metadata: present!.object.metadata } : sent;
    const faults = resource === EVENTS ? eventFaults(object, request.namespace ?? "") : [];
    if (faults.length > 0) {
      return sendStatus(response, statusFor(422, `Event "${object.metadata.name}" is invalid: ${faults.join(", ")}`));
    }
    const stored = this.#store.put({ ...object, kind: resource.kind, apiVersion: apiVersionOf(resource) });
    sendJson(response, verb === "create" ? 201 : 200, stored.object);
  }
}

type Effect = { readonly pace?: Pace; readonly cutAfter?: number };

const EVENTS = readRequest("GET", new URL("http://double/apis/events.k8s.io/v1/events"))!.resource;

function keyFor({ resource, namespace, name = "" }: ApiRequest): string {
  return resource.namespaced ? `${namespace}/${name}` : name;
}

async function textOf(message: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of message) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

function sendJson(
  response: ServerResponse,
  code: number,
  body: object,
  headers: Readonly<Record<string, string>> = {},
) {
  response.writeHead(code, { "Content-Type": "application/json", ...headers });
  response.end(`${JSON.stringify(body)}\n`);
}

function sendStatus(response: ServerResponse, status: StatusFields, headers?: Readonly<Record<string, string>>): void {
  if (!acceptsProtobuf(response)) return sendJson(response, status.code, statusObject(status), headers);
  response.writeHead(status.code, { "Content-Type": PROTOBUF, ...headers });
  response.end(encodeObject(statusObject(status)));
}

function acceptsProtobuf({ req }: ServerResponse): boolean {
  return req.headers.accept?.includes(PROTOBUF) === true;
}

function sendFault(response: ServerResponse, effect: StatusEffect): void {
  if (effect.body !== undefined) {
    response.writeHead(effect.status, { "Content-Type": "text/html", ...effect.headers });
    response.end(effect.body);
    return;
  }
  sendStatus(response, statusFor(effect.status, effect.message), effect.headers);
}

function sendDiscovery(response: ServerResponse, path: string): void {
  const answer = answerDiscovery(path);
  if (typeof answer === "object") return sendJson(response, 200, answer);
  response.writeHead(answer === undefined ? 404 : 200, { "Content-Type": "text/plain; charset=utf-8" });
  response.end(answer ?? "404 page not found\n");
}

function notFound({ resource, name }: ApiRequest): StatusFields {
  return statusFor(404, `${resource.plural} "${name}" not found`);
}

function forbidden({ verb, resource, namespace }: ApiRequest): StatusFields {
  const user = 'User "system:serviceaccount:kube-system:kube-proxy"';
  const scope = namespace === undefined ? "at the cluster scope" : `in the namespace "${namespace}"`;
  const what = `resource "${resource.plural}" in API group "${resource.group}"`;
  return statusFor(403, `${resource.plural} is forbidden: ${user} cannot ${verb} ${what} ${scope}`);
}

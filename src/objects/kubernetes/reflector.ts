/**
 * Lists the objects of one kind, then watches them. Lists again if the watch cannot continue from its last version. Objects
 * stay until a complete list or a deletion removes them.
 */
import { isFields, reasonOf } from "../../base/unknown.js";
import type { Logger } from "../../base/logger.js";
import type { Backoff } from "../../base/backoff.js";
import { runInSlices, TimeSlice } from "../../base/time-slice.js";
import { nameOf, type ObjectDecoder } from "../decode/object-decoder.js";
import type { KubeKind, ObjectSink } from "../object-sink.js";
import { ListBody, type ListMeta, WatchBody, type WatchEvent } from "./bodies.js";
import type { ApiConnection } from "./api-connection.js";
import { AccessDeniedError, isExpired, ProtocolError, StalledError, StatusError, TransportError } from "./errors.js";
import { collectionPath, type Resource } from "./resources.js";
import { backoffOf, pause, type Timing } from "./timing.js";
import type { FailureLog } from "./failure-log.js";

/** A complete list that lacks more than half of the known objects. */
export interface ShrunkList {
  readonly kind: KubeKind;
  readonly before: number;
  readonly removed: number;
}

interface ReflectorOptions {
  readonly resource: Resource;
  readonly connection: ApiConnection;
  readonly decoder: ObjectDecoder;
  readonly sink: Pick<ObjectSink, "upsert" | "remove" | "flush">;
  readonly timing: Timing;
  readonly failureLog: FailureLog;
  readonly log: Logger;
  /** Called after each answer of the server, except 429 and errors of the server itself. */
  readonly onAnswer: () => void;
  /** Called when bytes of a list or watch arrive, and after an answer that reports an error. */
  readonly onHeard?: () => void;
  /** Whether all objects that services need are known. */
  readonly complete: () => boolean;
  /** Called after such a list has been delivered. */
  readonly onShrunk?: (list: ShrunkList) => void;
  /** If set, 401 and 403 are final, and passed to it instead of logged. Default: retry with backoff. */
  readonly onDenied?: (error: AccessDeniedError) => void;
}

/**
 * Objects per page. Each page costs the server and us some ms, and no page is in memory as a whole. Pages limit the size of a
 * read from etcd, which servers before Kubernetes 1.34 make for each page. Later ones have pages in their cache.
 */
const PAGE = 10_000;
/** A watch that ends normally within this time counts as a failure, ms. */
const SHORT_WATCH_MS = 1_000;
/**
 * The first attempt after a success comes within this time, ms: soon, but not from all kinds and nodes at once. A list comes
 * within `minBackoffMs`, because many nodes may need one at the same time.
 */
const AT_ONCE_MS = 100;
/** Number of failures after which the resourceVersion itself may be the cause. */
const SUSPECT_AFTER = 3;
/** Upper limit of a Retry-After, ms. */
const MAX_RETRY_AFTER_MS = 300_000;
const CONNECTION = "connection";

/** A list that removes at most this many objects is never reported as shrunk. */
const FEW_REMOVED = 10;

export class Reflector {
  readonly #kind: KubeKind;
  readonly #backoff: Backoff;
  /** Ends the current wait. */
  #wake = new AbortController();
  readonly #timeSlice = new TimeSlice();
  /**
   * Names of the objects that the sink knows. The sink itself compares content to detect changes. After etcd was restored from
   * a backup, the same resourceVersion, even of the same uid, can mean different content.
   */
  readonly #known = new Set<string>();
  /** Version at which the next watch starts; undefined if a list is needed first. */
  #from: string | undefined;
  /** The next attempt after a failure starts at once. */
  #atOnce = true;
  /** Number of dead watches in a row. */
  #stalls = 0;
  /** The watch has failed since the last list, so the server may have been replaced by an older state of itself. */
  #interrupted = false;
  /** Whether the server has answered the current request. */
  #answered = false;
  /** The last request that failed was not answered, or only with an error of the server itself. */
  #away = false;
  #absenceLogged = false;
  #resolveListed: () => void = () => undefined;
  #listed = false;
  /** Resolves when the first list is complete, or when the server reports that it lacks an optional kind. */
  readonly listed: Promise<void>;

  constructor(private readonly options: ReflectorOptions) {
    this.#kind = options.resource.kind;
    this.#backoff = backoffOf(options.timing);
    this.listed = new Promise((resolve) => (this.#resolveListed = resolve));
  }

  get resource(): Resource {
    return this.options.resource;
  }

  /** Whether `listed` has resolved. */
  get isListed(): boolean {
    return this.#listed;
  }

  /**
   * The server answers again. If it did not answer this kind, the backoff ends, and the next failure counts as the first. The
   * backoff of other failures continues, because a server may answer one kind, but never another.
   */
  reconnected(): void {
    if (!this.#away) return;
    this.#away = false;
    this.#succeeded();
    this.#wake.abort();
    this.#wake = new AbortController();
  }

  /** Runs until `signal` aborts, or access is denied for good. After an abort, it does not call the sink. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        this.#answered = false;
        this.#from ??= await this.#list(signal);
        this.#answered = false;
        if (!signal.aborted) await this.#watch(this.#from, signal);
      } catch (error) {
        if (signal.aborted || this.#isFinal(error)) return;
        await this.#recover(error, signal);
      }
    }
  }

  /** Delivers a complete list, and removes objects that it lacks. Returns its resourceVersion. */
  async #list(signal: AbortSignal): Promise<string> {
    const { sink, log, timing, failureLog } = this.options;
    const started = performance.now();
    const before = this.#known.size;
    const present = new Set<string>();
    let reported = started;
    let token = "";
    let meta: ListMeta;
    const onItem = async (item: unknown): Promise<void> => {
      const name = await this.#deliver(item, signal);
      if (name !== undefined) present.add(name);
    };
    do {
      meta = await this.#page({ limit: String(PAGE), ...(token !== "" && { continue: token }) }, onItem, signal);
      token = meta.continue;
      if (token !== "" && performance.now() - reported >= timing.progressMs) {
        reported = performance.now();
        log.info({ kind: this.#kind, objects: present.size, remaining: meta.remaining }, "listing");
      }
    } while (token !== "");
    signal.throwIfAborted();
    if (meta.resourceVersion === "") throw new ProtocolError("the list has no resourceVersion");
    const removed = this.#removeAbsent(present);
    const ms = Math.round(performance.now() - started);
    log.info({ kind: this.#kind, objects: present.size, removed, ms }, "listed");
    failureLog.recovered(this.#kind, "list succeeded again", { kind: this.#kind });
    sink.flush();
    this.#markListed();
    this.#interrupted = false;
    if (removed > FEW_REMOVED && 2 * removed > before) this.#reportShrunk({ kind: this.#kind, before, removed });
    return meta.resourceVersion;
  }

  /** Returns the number of removed objects. */
  #removeAbsent(present: ReadonlySet<string>): number {
    const absent = [...this.#known].filter((name) => !present.has(name));
    for (const name of absent) {
      this.#known.delete(name);
      this.options.sink.remove(this.#kind, name);
    }
    return absent.length;
  }

  #reportShrunk(list: ShrunkList): void {
    const { log, onShrunk } = this.options;
    log.warn({ ...list }, "the API server's new list lacks more than half of the objects; removing them");
    onShrunk?.(list);
  }

  async #page(
    query: Readonly<Record<string, string>>,
    onItem: (item: unknown) => Promise<void>,
    signal: AbortSignal,
  ): Promise<ListMeta> {
    const { connection, resource, timing } = this.options;
    let body = new ListBody(resource, "JSON");
    const answer = connection.stream({
      method: "GET",
      path: collectionPath(resource, query),
      signal,
      idleMs: timing.answerIdleMs,
      continued: query["continue"] !== undefined,
      protobuf: true,
      onAnswer: (format) => {
        body = new ListBody(resource, format);
        this.#onAnswer();
      },
    });
    for await (const chunk of answer) {
      this.options.onHeard?.();
      this.#timeSlice.begin();
      for (const item of body.push(chunk)) {
        await onItem(item);
        if (this.#timeSlice.spent) await this.#timeSlice.yield();
      }
    }
    return body.end();
  }

  /**
   * Returns when the server ends the watch normally. After etcd was restored from a backup, versions start again at an earlier
   * one, and a watch from our version hears nothing. So a watch after an interruption also asks for the current version.
   */
  async #watch(from: string, signal: AbortSignal): Promise<void> {
    if (!this.#interrupted) return this.#watchUntil(from, signal);
    const { log } = this.options;
    const over = new AbortController();
    const ended = AbortSignal.any([signal, over.signal]);
    const check = this.#findOlderVersion(ended, () => over.abort());
    try {
      await this.#watchUntil(from, ended);
    } catch (error) {
      if (!over.signal.aborted) throw error;
    } finally {
      over.abort();
      // The watch may also have ended by itself, just when the answer came.
      const now = await check;
      if (now !== undefined) {
        log.warn(
          { kind: this.#kind, from, now },
          "the API server's resourceVersion went back, as after a restore of etcd; relisting",
        );
        this.#from = undefined;
      }
    }
  }

  /**
   * Resolves with the server's version, and calls `onFound`, if it is older than ours was when we asked. Retries until there
   * is an answer.
   */
  async #findOlderVersion(signal: AbortSignal, onFound: () => void): Promise<string | undefined> {
    const { timing } = this.options;
    while (!signal.aborted) {
      await pause(timing.resetAfterMs * (1 + Math.random()), signal);
      const from = this.#from;
      try {
        const { resourceVersion } = await this.#page({ limit: "1" }, () => Promise.resolve(), signal);
        this.#interrupted = false;
        if (!isOlder(resourceVersion, from)) return undefined;
        onFound();
        return resourceVersion;
      } catch {
        // The watch reports failures.
      }
    }
    return undefined;
  }

  async #watchUntil(from: string, signal: AbortSignal): Promise<void> {
    const { connection, resource, timing } = this.options;
    const started = performance.now();
    const seconds = Math.ceil((timing.watchMs * (1 + Math.random())) / 1000);
    let body = new WatchBody(resource, "JSON");
    const answer = connection.stream({
      method: "GET",
      path: collectionPath(resource, {
        watch: "true",
        resourceVersion: from,
        allowWatchBookmarks: "true",
        timeoutSeconds: String(seconds),
      }),
      signal,
      idleMs: timing.watchIdleMs,
      watch: true,
      protobuf: true,
      onAnswer: (format) => {
        body = new WatchBody(resource, format);
        this.#onAnswer();
      },
    });
    try {
      for await (const chunk of answer) await this.#handleChunk(body, chunk, signal);
    } finally {
      if (performance.now() - started >= timing.resetAfterMs) this.#succeeded();
    }
    if (body.midEvent) throw new TransportError("the watch ended in the middle of an event");
    if (performance.now() - started < Math.min(SHORT_WATCH_MS, timing.resetAfterMs)) {
      throw new TransportError("the watch ended immediately");
    }
  }

  async #handleChunk(body: WatchBody, chunk: Buffer, signal: AbortSignal): Promise<void> {
    this.#stalls = 0;
    this.options.onHeard?.();
    this.#timeSlice.begin();
    let changed = false;
    try {
      for (const event of body.push(chunk)) {
        changed = (await this.#event(event, signal)) || changed;
        if (this.#timeSlice.spent) await this.#timeSlice.yield();
      }
    } finally {
      if (changed && !signal.aborted) this.options.sink.flush();
    }
  }

  /** Returns whether the sink was called. */
  async #event({ type, object }: WatchEvent, signal: AbortSignal): Promise<boolean> {
    signal.throwIfAborted();
    const metadata = isFields(object) ? object["metadata"] : undefined;
    const version = isFields(metadata) ? metadata["resourceVersion"] : undefined;
    if (typeof version !== "string" || version === "")
      throw new ProtocolError(`an event of type ${type} has no resourceVersion`);
    const back = isOlder(version, this.#from);
    if (back && type !== "DELETED") {
      this.#from = undefined;
      throw new ProtocolError(`the resourceVersion went back to ${version}`);
    }
    if (!back) this.#from = version;
    if (type === "BOOKMARK") return false;
    if (type !== "DELETED") return (await this.#deliver(object, signal)) !== undefined;
    const name = nameOf(this.#kind, isFields(object) ? object : {});
    if (name === undefined || !this.#known.delete(name)) return false;
    this.options.sink.remove(this.#kind, name);
    return true;
  }

  /** Passes a newly parsed object on. Returns its name, or undefined if it has none. */
  async #deliver(item: unknown, signal: AbortSignal): Promise<string | undefined> {
    const name = isFields(item) ? nameOf(this.#kind, item) : undefined;
    if (!isFields(item) || name === undefined) return undefined;
    const { sink, decoder } = this.options;
    const slice = this.#timeSlice;
    // A large object is parsed in one turn of the event loop, decoded in others, and delivered in one more.
    if (slice.spent) await slice.yield();
    const decoded = await runInSlices(decoder.decodeInPieces(this.#kind, name, item), slice);
    if (slice.spent) await slice.yield();
    signal.throwIfAborted();
    this.#known.add(name);
    sink.upsert(decoded);
    return name;
  }

  #markListed(): void {
    this.#listed = true;
    this.#resolveListed();
  }

  #onAnswer(): void {
    const { connection, onAnswer, failureLog } = this.options;
    this.#answered = true;
    failureLog.recovered(CONNECTION, "connection to the API server restored", { server: connection.server });
    if (this.#from !== undefined) failureLog.recovered(this.#kind, "watch succeeded again", { kind: this.#kind });
    onAnswer();
  }

  #succeeded(): void {
    this.#backoff.reset();
    this.#atOnce = true;
  }

  /** Whether to give up. If so, `onDenied` has been called. */
  #isFinal(error: unknown): boolean {
    const { connection, onDenied, resource } = this.options;
    if (onDenied === undefined || !(error instanceof StatusError)) return false;
    const hint = hintFor(error.status);
    if (hint === undefined || (isAbsent(error) && resource.optional)) return false;
    const what = `${connection.server} denies listing ${this.#kind} objects (${error.status}: ${error.message})`;
    onDenied(new AccessDeniedError(`the API server ${what}; ${hint}`, { cause: error }));
    return true;
  }

  /** Decides where to continue, and waits as long as necessary. */
  async #recover(error: unknown, signal: AbortSignal): Promise<void> {
    const { resource, timing, log, onAnswer, onHeard } = this.options;
    if (error instanceof StatusError) onHeard?.();
    if (isAnswer(error)) onAnswer();
    else if (!this.#answered) this.#away = true;
    if (isAbsent(error) && resource.optional) return this.#skipKind(error, signal);
    const step = this.#from === undefined ? "list" : "watch";
    this.#interrupted ||= step === "watch";
    if (this.#mustList(error)) this.#from = undefined;
    const atOnce = this.#atOnce && !(error instanceof StatusError && !isExpired(error));
    this.#atOnce = false;
    if (isExpired(error)) log.info({ kind: this.#kind }, "resourceVersion expired; relisting");
    else this.#report(error, step, atOnce);
    if (atOnce) {
      const longestMs = isExpired(error) ? timing.minBackoffMs : Math.min(AT_ONCE_MS, timing.minBackoffMs);
      await pause(Math.random() * longestMs, signal);
      return;
    }
    const backoff = this.#backoff.next();
    if (error instanceof StatusError && error.retryAfterMs !== undefined) {
      // Not before the requested time, and not all clients at the same moment.
      const asked = Math.min(error.retryAfterMs, MAX_RETRY_AFTER_MS);
      return pause(asked + Math.random() * timing.minBackoffMs, signal);
    }
    // A server that nothing reaches is not burdened by attempts.
    const unreached = error instanceof TransportError && !this.#answered;
    const waitMs = unreached ? Math.min(backoff, timing.reconnectMs * (1 + Math.random())) : backoff;
    await pause(waitMs, AbortSignal.any([signal, this.#wake.signal]));
  }

  /** Whether the watch cannot continue from its last version. */
  #mustList(error: unknown): boolean {
    if (isExpired(error)) return true;
    if (error instanceof StalledError) return this.#answered && ++this.#stalls >= 2;
    if (error instanceof TransportError) return false;
    if (error instanceof StatusError && error.status < 500) return ![401, 403, 408, 429].includes(error.status);
    return this.#backoff.failures >= SUSPECT_AFTER;
  }

  /** The server lacks this kind, or does not show it to us. Keeps the last known state. */
  async #skipKind(error: StatusError, signal: AbortSignal): Promise<void> {
    const { log, timing } = this.options;
    if (!this.#absenceLogged)
      log.info({ kind: this.#kind, reason: error.message }, "kind not available to this user; skipped");
    this.#absenceLogged = true;
    // Forbidden does not mean absent: a server that is still loading its roles answers the same.
    if (error.status === 404) this.#markListed();
    await pause(timing.absentMs * (1 + Math.random()), signal);
  }

  #report(error: unknown, step: "list" | "watch", quiet: boolean): void {
    const { connection, failureLog, complete } = this.options;
    const reason = reasonOf(error);
    if (error instanceof TransportError) {
      const text = `connection to the API server failed; ${consequence(complete())}`;
      return failureLog.failed(CONNECTION, text, { server: connection.server, reason }, quiet);
    }
    const hint = error instanceof StatusError ? hintFor(error.status) : undefined;
    const fields = { kind: this.#kind, reason, hint };
    failureLog.failed(this.#kind, `${step} failed; ${consequence(this.#listed)}`, fields, quiet);
  }
}

/** Whether an API server that works gave this error. */
function isAnswer(error: unknown): boolean {
  return error instanceof StatusError && error.status < 500 && ![408, 429].includes(error.status);
}

function consequence(known: boolean): string {
  return known ? "keeping the last known state" : "retrying";
}

/** resourceVersions are increasing decimal numbers (KEP-5504). Any other text is never older. */
function isOlder(version: string, than: string | undefined): boolean {
  if (than === undefined || !/^\d+$/.test(version) || !/^\d+$/.test(than)) return false;
  return version.length === than.length ? version < than : version.length < than.length;
}

function isAbsent(error: unknown): error is StatusError {
  return error instanceof StatusError && (error.status === 404 || error.status === 403);
}

/** Advice for a server that denies access. Returns undefined for other statuses. */
function hintFor(status: number): string | undefined {
  if (status === 401) return "the server does not accept the credentials; check the token or client certificate";
  if (status === 403) return "bind ClusterRole system:node-proxier to this user";
  return undefined;
}

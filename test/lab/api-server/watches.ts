/** Watches: events of one resource for one client, and ways to disturb the stream. */
import { encodeEvent, encodeObject, envelope, type Json } from "./protobuf.ts";
import { apiVersionOf, type Resource } from "./resources.ts";
import { type ApiRequest, isTrue, numberOf, selectionOf } from "./requests.ts";
import type { Predicate } from "./selectors.ts";
import { expiredWatch, statusFor, statusObject, type StatusFields } from "./status.ts";
import { atRevision, type Change, type Store, type Stored } from "./store.ts";
import type { Wire } from "./wire.ts";

/** Default time limit if the client sets none, in s; a real server uses 30 to 60 minutes. */
const DEFAULT_TIMEOUT_S = 1800;

type EventType = "ADDED" | "MODIFIED" | "DELETED";

/** An open watch that a test can disturb. */
export class Watch {
  readonly resource: Resource;
  readonly query: URLSearchParams;
  readonly #wire: Wire;
  readonly #store: Store;
  readonly #matches: Predicate;
  readonly #bookmarks: boolean;
  /** The revision from which the client watches. Until the store reaches it, the client hears nothing, as from etcd. */
  readonly #from: number;
  #timer: NodeJS.Timeout | undefined;

  readonly #protobuf: boolean;

  /** Sends the initial events that the client asked for. Throws `BadRequest`. */
  constructor(store: Store, request: ApiRequest, wire: Wire, protobuf: boolean) {
    this.#protobuf = protobuf;
    this.resource = request.resource;
    this.query = request.query;
    this.#store = store;
    this.#wire = wire;
    this.#matches = selectionOf(request).matches;
    this.#bookmarks = isTrue(request.query.get("allowWatchBookmarks"));
    this.#from = numberOf(request.query, "resourceVersion") ?? 0;
  }

  get open(): boolean {
    return this.#wire.open;
  }

  /** Returns false if the watch cannot start because its revision is forgotten. */
  begin(): boolean {
    const { query, resource } = this;
    const from = this.#from;
    const initial = isTrue(query.get("sendInitialEvents"));
    if (from === 0 || initial) {
      for (const stored of this.#store.list(resource)) this.#deliver("ADDED", stored);
      if (initial) this.bookmark({ "k8s.io/initial-events-end": "true" });
    } else {
      const changes = this.#store.since(resource, from);
      if (changes === undefined) {
        this.error(expiredWatch(from, this.#store.oldest(resource)));
        return false;
      }
      for (const change of changes) this.change(change);
    }
    const seconds = numberOf(query, "timeoutSeconds") ?? DEFAULT_TIMEOUT_S;
    this.#timer = setTimeout(() => {
      this.bookmark();
      this.end();
    }, seconds * 1000);
    return true;
  }

  /** Sends a change of any resource if the client selected it. */
  change({ revision, before, now, gone }: Change): void {
    if (revision <= this.#from) return;
    const was = before !== undefined && before.resource === this.resource && this.#matches(before.object);
    const is = now !== undefined && now.resource === this.resource && this.#matches(now.object);
    if (is) this.#send(was ? "MODIFIED" : "ADDED", now);
    else if (was) this.#send("DELETED", gone ?? atRevision(before, revision));
  }

  /** Reports the server's current revision. Does nothing if the client did not ask for bookmarks. */
  bookmark(annotations?: Readonly<Record<string, string>>): void {
    if (!this.#bookmarks || this.#store.revision < this.#from) return;
    const metadata = { resourceVersion: String(this.#store.revision), creationTimestamp: null, annotations };
    const object = { kind: this.resource.kind, apiVersion: apiVersionOf(this.resource), metadata };
    this.event("BOOKMARK", object);
  }

  /** Sends an ERROR event, after which the server ends the stream. */
  error(status: StatusFields | number): void {
    const fields = typeof status === "number" ? statusFor(status) : status;
    this.event("ERROR", statusObject(fields));
    this.end();
  }

  /** Sends an event. @param object complete, with its kind and version. */
  event(type: string, object: Json): void {
    this.raw(this.#protobuf ? encodeEvent(type, encodeObject(object)) : `${JSON.stringify({ type, object })}\n`);
  }

  /** Sends bytes unchanged. */
  raw(text: string | Buffer): void {
    this.#wire.write(text);
  }

  /** Ends the stream normally, as the server does after the time limit. */
  end(): void {
    this.close();
    this.#wire.end();
  }

  /** Breaks the connection, with `midLine` in the middle of an event. */
  cut({ midLine = false }: { readonly midLine?: boolean } = {}): void {
    if (midLine)
      this.raw(this.#protobuf ? Buffer.from([0, 0, 0, 9, 10, 8, 77]) : '{"type":"MODIFIED","object":{"kind":"');
    this.close();
    this.#wire.cut();
  }

  /** Stops sending without closing the connection: a dead link. */
  stall(): void {
    this.#wire.stall();
  }

  /** Clears the timer; called when the client has disconnected. */
  close(): void {
    clearTimeout(this.#timer);
  }

  #deliver(type: EventType, stored: Stored): void {
    if (this.#matches(stored.object)) this.#send(type, stored);
  }

  #send(type: EventType, stored: Stored): void {
    const { kind } = this.resource;
    const apiVersion = apiVersionOf(this.resource);
    if (this.#protobuf) return this.raw(encodeEvent(type, envelope(kind, apiVersion, stored.message)));
    this.raw(`{"type":"${type}","object":{"kind":"${kind}","apiVersion":"${apiVersion}",${stored.body}}\n`);
  }
}

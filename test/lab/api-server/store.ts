/** Objects, their revisions and their history, as etcd and the watch cache hold them together. */
import { randomUUID } from "node:crypto";
import { managedFields } from "./managed-fields.ts";
import { apiVersionOf, type KubeJson, type Resource, resourceOfKind } from "./resources.ts";

/** One version of an object. Its text is made once, however many clients it goes to. */
export interface Stored {
  readonly resource: Resource;
  /** "namespace/name", or the name alone. */
  readonly key: string;
  readonly revision: number;
  readonly object: KubeJson;
  /** JSON of all but kind and apiVersion, without the opening brace: as an item of a list. */
  readonly body: string;
}

/** One change. `before` is absent when the object was created, `now` when it was deleted. */
export interface Change {
  readonly revision: number;
  readonly before: Stored | undefined;
  readonly now: Stored | undefined;
  /** The last state under the revision of the deletion, as DELETED events carry it. */
  readonly gone: Stored | undefined;
}

/** Changes kept of one resource; the watch cache of a server keeps at most 102,400. */
const HISTORY = 102_400;

class Shelf {
  readonly objects = new Map<string, Stored>();
  history: Change[] = [];
  /** Changes up to this revision are forgotten. */
  forgotten = 0;
  /** Contents in order of their keys; undefined when a change made it stale. */
  sorted: readonly Stored[] | undefined;
  /** Contents at the revisions that lists in pages were begun at. */
  readonly snapshots = new Map<number, readonly Stored[]>();
}

export interface StoreOptions {
  /** Give objects metadata.managedFields, as every real one has. */
  readonly managedFields: boolean;
}

export class Store {
  readonly #options: StoreOptions;
  readonly #shelves = new Map<Resource, Shelf>();
  readonly #listeners = new Set<(change: Change) => void>();
  /** A cluster is never at its first revision. */
  #revision = 1000;

  constructor(options: StoreOptions) {
    this.#options = options;
  }

  get revision(): number {
    return this.#revision;
  }

  onChange(listener: (change: Change) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  put(object: KubeJson): Stored {
    const resource = resourceOfKind(object.kind);
    const shelf = this.#shelf(resource);
    const key = keyOf(resource, object);
    const before = shelf.objects.get(key);
    const now = this.#version(resource, key, object, before);
    shelf.objects.set(key, now);
    this.#record(shelf, { revision: now.revision, before, now, gone: undefined });
    return now;
  }

  /** False when there is no such object. */
  delete(kind: string, key: string): boolean {
    const resource = resourceOfKind(kind);
    const shelf = this.#shelf(resource);
    const before = shelf.objects.get(key);
    if (before === undefined) return false;
    shelf.objects.delete(key);
    const gone = atRevision(before, ++this.#revision);
    this.#record(shelf, { revision: gone.revision, before, now: undefined, gone });
    return true;
  }

  get(resource: Resource, key: string): Stored | undefined {
    return this.#shelf(resource).objects.get(key);
  }

  /** Contents now, in order of their keys. */
  list(resource: Resource): readonly Stored[] {
    const shelf = this.#shelf(resource);
    shelf.sorted ??= [...shelf.objects.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
    return shelf.sorted;
  }

  /** Keeps the contents of now for later pages. */
  keepSnapshot(resource: Resource): void {
    this.#shelf(resource).snapshots.set(this.#revision, this.list(resource));
  }

  /** Contents at a revision that a snapshot was kept of; undefined when it is compacted away. */
  snapshot(resource: Resource, revision: number): readonly Stored[] | undefined {
    return this.#shelf(resource).snapshots.get(revision);
  }

  /** Changes after a revision; undefined when some of them are forgotten. */
  since(resource: Resource, revision: number): readonly Change[] | undefined {
    const shelf = this.#shelf(resource);
    if (revision < shelf.forgotten) return undefined;
    const first = shelf.history.findIndex((change) => change.revision > revision);
    return first < 0 ? [] : shelf.history.slice(first);
  }

  /** The revision that the oldest change still known follows. */
  oldest(resource: Resource): number {
    return this.#shelf(resource).forgotten;
  }

  /** Forgets all history and every snapshot, as etcd's compaction and a restart of the server together do. */
  compact(): void {
    for (const shelf of this.#shelves.values()) {
      shelf.history = [];
      shelf.snapshots.clear();
      shelf.forgotten = this.#revision;
    }
  }

  /** Counts revisions on, as writes to objects that are not served do. */
  advance(by: number): void {
    this.#revision += by;
  }

  #shelf(resource: Resource): Shelf {
    let shelf = this.#shelves.get(resource);
    if (shelf === undefined) this.#shelves.set(resource, (shelf = new Shelf()));
    return shelf;
  }

  #record(shelf: Shelf, change: Change): void {
    shelf.sorted = undefined;
    shelf.history.push(change);
    if (shelf.history.length > HISTORY) shelf.forgotten = shelf.history.shift()?.revision ?? shelf.forgotten;
    for (const listener of this.#listeners) listener(change);
  }

  #version(resource: Resource, key: string, object: KubeJson, before: Stored | undefined): Stored {
    const revision = ++this.#revision;
    const { metadata } = object;
    const old = before?.object.metadata;
    const full = {
      ...metadata,
      ...(resource.namespaced && { namespace: metadata.namespace ?? "default" }),
      uid: old?.["uid"] ?? metadata["uid"] ?? randomUUID(),
      resourceVersion: String(revision),
      creationTimestamp: old?.["creationTimestamp"] ?? metadata["creationTimestamp"] ?? secondsNow(),
      ...(this.#options.managedFields && {
        managedFields: metadata["managedFields"] ?? managedFields(apiVersionOf(resource), object),
      }),
    };
    return stored(resource, key, revision, { ...object, apiVersion: apiVersionOf(resource), metadata: full });
  }
}

/** The same state under another revision, as events carry what a client does not see any more. */
export function atRevision(before: Stored, revision: number): Stored {
  const { object } = before;
  const metadata = { ...object.metadata, resourceVersion: String(revision) };
  return stored(before.resource, before.key, revision, { ...object, metadata });
}

function stored(resource: Resource, key: string, revision: number, object: KubeJson): Stored {
  const { kind: _kind, apiVersion: _apiVersion, metadata, ...rest } = object;
  return { resource, key, revision, object, body: JSON.stringify({ metadata, ...rest }).slice(1) };
}

export function keyOf(resource: Resource, object: KubeJson): string {
  const { name, namespace } = object.metadata;
  return resource.namespaced ? `${namespace ?? "default"}/${name}` : name;
}

/** Times in metadata have whole seconds. */
function secondsNow(): string {
  return `${new Date().toISOString().slice(0, 19)}Z`;
}

/** Objects, their revisions and their history, like etcd and the watch cache together. */
import { randomUUID } from "node:crypto";
import { managedFields } from "./managed-fields.ts";
import { encode } from "./protobuf.ts";
import { apiVersionOf, type KubeJson, type Resource, resourceOfKind } from "./resources.ts";

/** One version of an object. Its text is made once for all clients. */
export interface Stored {
  readonly resource: Resource;
  /** "namespace/name", or only the name. */
  readonly key: string;
  readonly revision: number;
  readonly object: KubeJson;
  /** The item's JSON in a list: without kind, apiVersion and the opening brace. */
  readonly body: string;
  /** The item in a list in protobuf. */
  readonly message: Buffer;
}

/** One change. `before` is absent if the object was created, `now` if it was deleted. */
export interface Change {
  readonly revision: number;
  readonly before: Stored | undefined;
  readonly now: Stored | undefined;
  /** The last state with the revision of the deletion, as in DELETED events. */
  readonly gone: Stored | undefined;
}

/** Number of changes kept per resource; a server's watch cache keeps at most 102,400. */
const HISTORY = 102_400;

class Shelf {
  readonly objects = new Map<string, Stored>();
  history: Change[] = [];
  /** Changes up to this revision are forgotten. */
  forgotten = 0;
  /** Contents sorted by key; undefined after a change. */
  sorted: readonly Stored[] | undefined;
  /** Contents at the revisions at which paged lists began. */
  readonly snapshots = new Map<number, readonly Stored[]>();
}

export interface Backup {
  readonly revision: number;
  readonly objects: readonly (readonly [Resource, ReadonlyMap<string, Stored>])[];
}

export interface StoreOptions {
  /** Whether to give objects metadata.managedFields, as real ones have. */
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

  /** Returns false if there is no such object. */
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

  /** Returns the current contents, sorted by key. */
  list(resource: Resource): readonly Stored[] {
    const shelf = this.#shelf(resource);
    shelf.sorted ??= [...shelf.objects.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
    return shelf.sorted;
  }

  /** Keeps the current contents for later pages. */
  keepSnapshot(resource: Resource): void {
    this.#shelf(resource).snapshots.set(this.#revision, this.list(resource));
  }

  /** Returns the contents at a revision with a snapshot. Returns undefined if it is compacted. */
  snapshot(resource: Resource, revision: number): readonly Stored[] | undefined {
    return this.#shelf(resource).snapshots.get(revision);
  }

  /** Returns the changes after a revision. Returns undefined if some of them are forgotten. */
  since(resource: Resource, revision: number): readonly Change[] | undefined {
    const shelf = this.#shelf(resource);
    if (revision < shelf.forgotten) return undefined;
    const first = shelf.history.findIndex((change) => change.revision > revision);
    return first < 0 ? [] : shelf.history.slice(first);
  }

  /** Returns the revision before the oldest known change. */
  oldest(resource: Resource): number {
    return this.#shelf(resource).forgotten;
  }

  /** Forgets all history and every snapshot, like etcd's compaction plus a restart of the server. */
  compact(): void {
    for (const shelf of this.#shelves.values()) {
      shelf.history = [];
      shelf.snapshots.clear();
      shelf.forgotten = this.#revision;
    }
  }

  /** Increases the revision, as writes to objects that are not served do. */
  advance(by: number): void {
    this.#revision += by;
  }

  /** Copies the current objects and the revision, like a backup of etcd. */
  backup(): Backup {
    const objects = [...this.#shelves].map(([resource, shelf]) => [resource, new Map(shelf.objects)] as const);
    return { revision: this.#revision, objects };
  }

  /** Returns to a backup. Its history is forgotten. */
  restore({ revision, objects }: Backup): void {
    this.#shelves.clear();
    this.#revision = revision;
    for (const [resource, stored] of objects)
      for (const [key, one] of stored) this.#shelf(resource).objects.set(key, one);
    this.compact();
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

/** The same state under another revision, for events about an object that a client no longer sees. */
export function atRevision(before: Stored, revision: number): Stored {
  const { object } = before;
  const metadata = { ...object.metadata, resourceVersion: String(revision) };
  return stored(before.resource, before.key, revision, { ...object, metadata });
}

function stored(resource: Resource, key: string, revision: number, object: KubeJson): Stored {
  const { kind: _kind, apiVersion: _apiVersion, metadata, ...rest } = object;
  let message: Buffer | undefined;
  return {
    resource,
    key,
    revision,
    object,
    body: JSON.stringify({ metadata, ...rest }).slice(1),
    get message() {
      return (message ??= encode(resource.kind, object));
    },
  };
}

export function keyOf(resource: Resource, object: KubeJson): string {
  const { name, namespace } = object.metadata;
  return resource.namespaced ? `${namespace ?? "default"}/${name}` : name;
}

/** Timestamps in metadata have whole seconds. */
function secondsNow(): string {
  return `${new Date().toISOString().slice(0, 19)}Z`;
}

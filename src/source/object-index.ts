/**
 * Which file gives which object, and what the sink was told. Of several files that hold the same object the first by name
 * counts; when it lets go of it, the next one's takes its place.
 */
import { hash } from "node:crypto";
import type { NamedObject } from "./objects.js";
import type { KubeKind, KubeObject, ObjectSink } from "./types.js";

/** "Service default/web". */
type Key = string;

/** Objects are compared by these 53 bits of a hash of their text; kept instead of the objects. */
type Fingerprint = number;

/** The objects that a file holds now. */
export class FileObjects {
  /** In the order of the file; of repeated ones the first. */
  readonly objects = new Map<Key, { readonly object: KubeObject; readonly fingerprint: Fingerprint }>();
  readonly repeated: Key[] = [];
  readonly #compare: boolean;

  /** `compare`: it will be compared with other versions of the file. */
  constructor(compare: boolean) {
    this.#compare = compare;
  }

  add({ name, object }: NamedObject): void {
    const key = `${object.kind} ${name}`;
    if (this.objects.has(key)) this.repeated.push(key);
    else this.objects.set(key, { object, fingerprint: this.#compare ? fingerprintOf(object.object) : 0 });
  }
}

/** The same object in two files. */
export interface FileClash {
  readonly object: Key;
  readonly file: string;
  /** The file whose object counts. */
  readonly first: string;
}

/** What new versions of files came to. */
export interface IndexUpdate {
  /** There was something to tell. */
  readonly changed: boolean;
  /** The new ones. */
  readonly clashes: readonly FileClash[];
  /** Files whose objects now count but are not at hand: they must be read again and passed in a further call. */
  readonly wanted: ReadonlySet<string>;
}

export class ObjectIndex {
  readonly #files = new Map<string, Map<Key, Fingerprint>>();
  /** Files that hold an object: the name alone when there is one, else sorted. */
  readonly #holders = new Map<Key, string | readonly string[]>();
  readonly #told = new Map<Key, Fingerprint>();

  /** Whether any object of the file is known. */
  holds(file: string): boolean {
    return (this.#files.get(file)?.size ?? 0) > 0;
  }

  /** Whether the file's new version lacks an object that the old one held. */
  lacks(file: string, now: FileObjects): boolean {
    for (const key of this.#files.get(file)?.keys() ?? []) if (!now.objects.has(key)) return true;
    return false;
  }

  /**
   * Takes over new versions of files (undefined: the file is gone) and tells the sink what changed, object by object: whoever
   * walks through it decides when the event loop has its turn. Nothing else may be called until the end.
   */
  *update(versions: ReadonlyMap<string, FileObjects | undefined>, sink: ObjectSink): Generator<undefined, IndexUpdate> {
    const touched = new Set<Key>();
    const added: { key: Key; file: string }[] = [];
    for (const [file, version] of versions) yield* this.#take(file, version, touched, added);
    // Only now: an object that moves from one file to another is in both for a moment.
    const clashes = new Map<string, FileClash>();
    for (const { key, file } of added) {
      for (const clash of this.#clashesOf(key, file)) clashes.set(`${key} ${clash.file}`, clash);
    }
    const wanted = new Set<string>();
    let changed = false;
    for (const key of touched) {
      yield;
      const owner = this.#owner(key);
      if (owner === undefined) {
        changed = this.#forget(key, sink) || changed;
        continue;
      }
      const fingerprint = this.#files.get(owner)?.get(key);
      if (fingerprint === this.#told.get(key)) continue;
      const found = versions.get(owner)?.objects.get(key);
      if (found === undefined || fingerprint === undefined) {
        wanted.add(owner);
        continue;
      }
      this.#told.set(key, fingerprint);
      sink.upsert(found.object);
      changed = true;
    }
    return { changed, clashes: [...clashes.values()], wanted };
  }

  *#take(
    file: string,
    version: FileObjects | undefined,
    touched: Set<Key>,
    added: { key: Key; file: string }[],
  ): Generator<undefined> {
    const before = this.#files.get(file);
    const now = new Map<Key, Fingerprint>();
    for (const [key, { fingerprint }] of version?.objects ?? []) {
      yield;
      now.set(key, fingerprint);
      if (this.#told.get(key) !== fingerprint) touched.add(key);
      if (before?.has(key)) continue;
      this.#hold(key, file);
      touched.add(key);
      added.push({ key, file });
    }
    for (const key of before?.keys() ?? []) {
      if (now.has(key)) continue;
      this.#release(key, file);
      touched.add(key);
    }
    if (version === undefined) this.#files.delete(file);
    else this.#files.set(file, now);
  }

  /** The clashes that `file` has brought by its new object. */
  #clashesOf(key: Key, file: string): FileClash[] {
    const holders = this.#holders.get(key);
    const [first, ...others] = typeof holders === "object" ? holders : [];
    if (first === undefined) return [];
    return (first === file ? others : [file]).map((other) => ({ object: key, file: other, first }));
  }

  #owner(key: Key): string | undefined {
    const holders = this.#holders.get(key);
    return typeof holders === "object" ? holders[0] : holders;
  }

  #hold(key: Key, file: string): void {
    const holders = this.#holders.get(key);
    const list = holders === undefined ? [] : typeof holders === "string" ? [holders] : holders;
    this.#holders.set(key, list.length === 0 ? file : [...list, file].sort());
  }

  #release(key: Key, file: string): void {
    const holders = this.#holders.get(key);
    const rest = typeof holders === "object" ? holders.filter((other) => other !== file) : [];
    if (rest.length > 0) this.#holders.set(key, rest);
    else this.#holders.delete(key);
  }

  #forget(key: Key, sink: ObjectSink): boolean {
    if (!this.#told.delete(key)) return false;
    const space = key.indexOf(" ");
    sink.remove(key.slice(0, space) as KubeKind, key.slice(space + 1));
    return true;
  }
}

function fingerprintOf(object: unknown): Fingerprint {
  return Number.parseInt(hash("sha1", JSON.stringify(object), "hex").slice(0, 13), 16);
}

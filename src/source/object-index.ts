/**
 * Which file gives which object, and what the sink was told. Of several files that hold the same object the first by name
 * counts; when it lets go of it, the next one's takes its place.
 */
import { hash } from "node:crypto";
import type { NamedObject, Place } from "./objects.js";
import type { KubeKind, KubeObject, ObjectSink } from "./types.js";

/** "Service default/web". */
type Key = string;

/** Objects are compared by these 53 bits of a hash of their text; kept instead of the objects. */
type Fingerprint = number;

/** The objects that a file holds now. */
export class FileObjects {
  /** In the order of the file; of repeated ones the first. */
  readonly objects = new Map<Key, { readonly object: KubeObject; readonly fingerprint: Fingerprint }>();
  readonly repeated: { readonly key: Key; readonly place: Place }[] = [];
  readonly #compare: boolean;

  /** `compare`: it will be compared with other versions of the file. */
  constructor(compare: boolean) {
    this.#compare = compare;
  }

  add({ name, object, place }: NamedObject): void {
    const key = `${object.kind} ${name}`;
    if (this.objects.has(key)) this.repeated.push({ key, place });
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

/** An object that some file holds, or that the sink knows. */
interface Known {
  /** Files that hold it: the name alone when there is one, else sorted. */
  holders: string | readonly string[];
  /** What the sink was told; undefined: nothing. */
  told: Fingerprint | undefined;
}

export class ObjectIndex {
  readonly #files = new Map<string, Map<Key, Fingerprint>>();
  /** One Map: V8 copies each when it grows, and two of all objects would grow in the same moment. */
  readonly #known = new Map<Key, Known>();

  /** No file holds any object. */
  get empty(): boolean {
    return this.#known.size === 0;
  }

  /** The file whose object counts; undefined when none has it. */
  fileOf(key: Key): string | undefined {
    return ownerOf(this.#known.get(key));
  }

  /** All there are. Looks at every object. */
  clashes(): FileClash[] {
    return [...this.#known].flatMap(([object, known]) => {
      const [first, ...others] = filesOf(known);
      return first === undefined ? [] : others.map((file) => ({ object, file, first }));
    });
  }

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
      const known = this.#known.get(key);
      const owner = ownerOf(known);
      if (known === undefined || owner === undefined) {
        changed = this.#forget(key, sink) || changed;
        continue;
      }
      const fingerprint = this.#files.get(owner)?.get(key);
      if (fingerprint === known.told) continue;
      const found = versions.get(owner)?.objects.get(key);
      if (found === undefined || fingerprint === undefined) {
        wanted.add(owner);
        continue;
      }
      known.told = fingerprint;
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
      if (before?.has(key)) {
        if (this.#known.get(key)?.told !== fingerprint) touched.add(key);
        continue;
      }
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
    const holders = this.#known.get(key)?.holders;
    const [first, ...others] = typeof holders === "object" ? holders : [];
    if (first === undefined) return [];
    return (first === file ? others : [file]).map((other) => ({ object: key, file: other, first }));
  }

  #hold(key: Key, file: string): void {
    const known = this.#known.get(key);
    if (known === undefined) this.#known.set(key, { holders: file, told: undefined });
    else known.holders = known.holders.length === 0 ? file : [...filesOf(known), file].sort();
  }

  /** The object stays known: whoever touches it looks who has it now, and forgets what nobody has. */
  #release(key: Key, file: string): void {
    const known = this.#known.get(key);
    if (known !== undefined) known.holders = filesOf(known).filter((other) => other !== file);
  }

  /** Returns whether the sink knew it. */
  #forget(key: Key, sink: ObjectSink): boolean {
    const told = this.#known.get(key)?.told;
    this.#known.delete(key);
    if (told === undefined) return false;
    const space = key.indexOf(" ");
    sink.remove(key.slice(0, space) as KubeKind, key.slice(space + 1));
    return true;
  }
}

function filesOf({ holders }: Known): readonly string[] {
  return typeof holders === "string" ? [holders] : holders;
}

/** The file whose object counts; undefined when none has it. */
function ownerOf(known: Known | undefined): string | undefined {
  return typeof known?.holders === "string" ? known.holders : known?.holders[0];
}

function fingerprintOf(object: unknown): Fingerprint {
  return Number.parseInt(hash("sha1", JSON.stringify(object), "hex").slice(0, 13), 16);
}

/**
 * Tracks which file provides which object. If several files contain the same object, the first by name counts. If it loses the
 * object, the next file's takes its place.
 */
import { isDeepStrictEqual } from "node:util";
import type { TimeSlice } from "../../base/time-slice.js";
import { sameDetails, sameService, sameSlice } from "../records.js";
import type { KubeObject, ObjectSink } from "../object-sink.js";
import type { Place } from "./items.js";

/** "Service default/web". */
type Key = string;

export const keyOf = ({ kind, name }: Pick<KubeObject, "kind" | "name">): Key => `${kind} ${name}`;

function isSame(a: KubeObject, b: KubeObject | undefined): boolean {
  if (b === undefined || !hasSameRecord(a, b)) return false;
  return isDeepStrictEqual({ ...a, record: undefined }, { ...b, record: undefined });
}

/** Not isDeepStrictEqual, which takes too long for records with tens of thousands of ports. */
function hasSameRecord(a: KubeObject, b: KubeObject): boolean {
  if (a.kind === "Service" && b.kind === "Service" && a.record && b.record) return sameService(a.record, b.record);
  if (a.kind === "EndpointSlice" && b.kind === "EndpointSlice" && a.record && b.record)
    return sameSlice(a.record, b.record) && sameDetails(a.record, b.record);
  return "record" in a && "record" in b ? isDeepStrictEqual(a.record, b.record) : !("record" in a || "record" in b);
}

/** The objects of one version of a file. */
export interface FileObjects {
  /** In file order; the first of repeated ones. */
  readonly objects: Map<Key, KubeObject>;
  readonly repeated: { readonly key: Key; readonly place: Place }[];
}

/** The same object in two files. */
export interface FileClash {
  readonly object: Key;
  readonly file: string;
  /** The file whose object counts. */
  readonly first: string;
}

export class ObjectIndex {
  readonly #files = new Map<string, Map<Key, KubeObject>>();
  /** Files that contain an object: a single name, or a sorted list of several. */
  readonly #holders = new Map<Key, string | readonly string[]>();

  /** True if no file contains an object. */
  get empty(): boolean {
    return this.#holders.size === 0;
  }

  /** The file whose object counts. Returns undefined if no file has it. */
  fileOf(key: Key): string | undefined {
    return this.#holdersOf(key)[0];
  }

  /** All clashes. Takes time proportional to the number of objects. */
  clashes(): FileClash[] {
    return [...this.#holders.keys()].flatMap((object) => {
      const [first = "", ...others] = this.#holdersOf(object);
      return others.map((file) => ({ object, file, first }));
    });
  }

  /** Whether any object of the file is known. */
  holds(file: string): boolean {
    return (this.#files.get(file)?.size ?? 0) > 0;
  }

  /** Whether the file's new version lacks an object of the old one. */
  lacks(file: string, { objects }: FileObjects): boolean {
    for (const key of this.#files.get(file)?.keys() ?? []) if (!objects.has(key)) return true;
    return false;
  }

  /**
   * Applies new versions of files (undefined if a file is gone), and passes the changes on. Call nothing else until it
   * resolves.
   * @param slice if given, the event loop runs in between. Without it, changes made together arrive together.
   */
  async update(
    versions: ReadonlyMap<string, FileObjects | undefined>,
    sink: ObjectSink,
    slice?: TimeSlice,
  ): Promise<{ changed: boolean; clashes: readonly FileClash[] }> {
    /** The objects that counted before. */
    const touched = new Map<Key, KubeObject | undefined>();
    for (const [file, version] of versions) {
      for (const objects of [this.#files.get(file), version?.objects]) {
        for (const key of objects?.keys() ?? []) {
          if (slice?.spent === true) await slice.yield();
          if (!touched.has(key)) touched.set(key, this.#counting(key));
        }
      }
    }
    const added: [Key, string][] = [];
    for (const [file, version] of versions) await this.#replace(file, version?.objects ?? new Map(), added, slice);
    let changed = false;
    for (const [key, before] of touched) {
      if (slice?.spent === true) await slice.yield();
      const now = this.#counting(key);
      if (now === before || (now !== undefined && isSame(now, before))) continue;
      if (now !== undefined) sink.upsert(now);
      else if (before !== undefined) sink.remove(before.kind, before.name);
      changed = true;
    }
    // Check only now, because an object that moves between files is briefly in both.
    const clashes = new Map(added.flatMap(([key, file]) => this.#clashesOf(key, file)));
    return { changed, clashes: [...clashes.values()] };
  }

  /** @param added receives the objects that the file did not have before. */
  async #replace(file: string, objects: Map<Key, KubeObject>, added: [Key, string][], slice?: TimeSlice) {
    const before = this.#files.get(file);
    for (const key of before?.keys() ?? []) {
      if (!objects.has(key))
        this.#hold(
          key,
          this.#holdersOf(key).filter((other) => other !== file),
        );
    }
    for (const [key, object] of objects) {
      if (slice?.spent === true) await slice.yield();
      const known = before?.get(key);
      if (known === undefined) {
        this.#hold(key, this.#holders.has(key) ? [...this.#holdersOf(key), file].sort() : [file]);
        added.push([key, file]);
      } else if (isSame(object, known)) {
        // Keep the object that the sink has, so that none is in memory twice.
        objects.set(key, known);
      }
    }
    if (objects.size === 0) this.#files.delete(file);
    else this.#files.set(file, objects);
  }

  #hold(key: Key, files: readonly string[]): void {
    const [only] = files;
    if (only === undefined) this.#holders.delete(key);
    else this.#holders.set(key, files.length === 1 ? only : files);
  }

  #holdersOf(key: Key): readonly string[] {
    const holders = this.#holders.get(key) ?? [];
    return typeof holders === "string" ? [holders] : holders;
  }

  /** The object that counts. */
  #counting(key: Key): KubeObject | undefined {
    return this.#files.get(this.#holdersOf(key)[0] ?? "")?.get(key);
  }

  /** The clashes caused by a new object of `file`. */
  #clashesOf(object: Key, file: string): [string, FileClash][] {
    const [first = "", ...others] = this.#holdersOf(object);
    const losers = first === file ? others : others.filter((other) => other === file);
    return losers.map((loser) => [`${object} ${loser}`, { object, file: loser, first }]);
  }
}

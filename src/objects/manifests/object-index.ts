/**
 * Which file gives which object. Of several files that hold the same object the first by name counts; when it lets go of it, the
 * next one's takes its place.
 */
import { isDeepStrictEqual } from "node:util";
import type { TimeSlice } from "../../base/time-slice.js";
import { sameDetails, sameService, sameSlice } from "../records.js";
import type { KubeObject, ObjectSink } from "../object-sink.js";
import type { Place } from "./objects.js";

/** "Service default/web". */
type Key = string;

export const keyOf = ({ kind, name }: Pick<KubeObject, "kind" | "name">): Key => `${kind} ${name}`;

function isSame(a: KubeObject, b: KubeObject | undefined): boolean {
  if (b === undefined || !hasSameRecord(a, b)) return false;
  return isDeepStrictEqual({ ...a, record: undefined }, { ...b, record: undefined });
}

/** Not by isDeepStrictEqual: that takes too long for records with tens of thousands of ports. */
function hasSameRecord(a: KubeObject, b: KubeObject): boolean {
  if (a.kind === "Service" && b.kind === "Service" && a.record && b.record) return sameService(a.record, b.record);
  if (a.kind === "EndpointSlice" && b.kind === "EndpointSlice" && a.record && b.record)
    return sameSlice(a.record, b.record) && sameDetails(a.record, b.record);
  return "record" in a && "record" in b ? isDeepStrictEqual(a.record, b.record) : !("record" in a || "record" in b);
}

/** The objects of one version of a file. */
export interface FileObjects {
  /** In the order of the file; of repeated ones the first. */
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
  /** Files that hold an object: the name alone when there is one, else sorted. */
  readonly #holders = new Map<Key, string | readonly string[]>();

  /** No file holds any object. */
  get empty(): boolean {
    return this.#holders.size === 0;
  }

  /** The file whose object counts; undefined when none has it. */
  fileOf(key: Key): string | undefined {
    return this.#holdersOf(key)[0];
  }

  /** All there are. Looks at every object. */
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

  /** Whether the file's new version lacks an object that the old one held. */
  lacks(file: string, { objects }: FileObjects): boolean {
    for (const key of this.#files.get(file)?.keys() ?? []) if (!objects.has(key)) return true;
    return false;
  }

  /**
   * Takes over new versions of files (undefined: the file is gone) and hands on what changed. Nothing else may be called
   * until the end.
   * @param slice the event loop has its turns meanwhile. Default: it has none, and changes that were made together
   *   arrive together.
   */
  async update(
    versions: ReadonlyMap<string, FileObjects | undefined>,
    sink: ObjectSink,
    slice?: TimeSlice,
  ): Promise<{ changed: boolean; clashes: readonly FileClash[] }> {
    /** What counted before. */
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
    // Only now: an object that moves from one file to another is in both for a moment.
    const clashes = new Map(added.flatMap(([key, file]) => this.#clashesOf(key, file)));
    return { changed, clashes: [...clashes.values()] };
  }

  /** `added` receives the objects that the file did not hold before. */
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
        // The one that the sink has: no object is in memory twice.
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

  /** The clashes that `file` has brought by its new object. */
  #clashesOf(object: Key, file: string): [string, FileClash][] {
    const [first = "", ...others] = this.#holdersOf(object);
    const losers = first === file ? others : others.filter((other) => other === file);
    return losers.map((loser) => [`${object} ${loser}`, { object, file: loser, first }]);
  }
}

import { UserError } from "../../base/user-error.js";
import { counted } from "../../base/counted.js";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { BoundedFrequencyRunner, type WriteOutcome } from "../../base/bounded-frequency-runner.js";
import { DirectoryWatch, type OpenInotify } from "../../base/directory-watch.js";
import { runInSlices, TimeSlice } from "../../base/time-slice.js";
import { isNoEntry, reasonOf } from "../../base/unknown.js";
import type { ObjectDecoder } from "../decode/object-decoder.js";
import type { ObjectSink, ObjectSource } from "../object-sink.js";
import { FileFault, readDocuments } from "./documents.js";
import { type FileContent, fileVersion, formatOf, isManifest, listDirectory, readManifest } from "./files.js";
import { type FileClash, type FileObjects, keyOf, ObjectIndex } from "./object-index.js";
import { itemsOf, type Place } from "./items.js";
import { unknownFields, type UnknownFields } from "./unknown-fields.js";

/**
 * The part of a file with a problem that is still served: everything but the wrong part, its last good version, or nothing.
 * "nothing" means that there has been no good version since startup.
 */
export type ManifestRemainder = "rest" | "last" | "nothing";

/** A part of the directory that cannot be used. */
export interface ManifestProblem {
  readonly file: string;
  readonly served: ManifestRemainder;
  /** From 1. */
  readonly line?: number;
  /** From 1. */
  readonly column?: number;
  readonly reason: string;
  /** How to fix it, if correcting the place is not enough. */
  readonly remedy?: string;
  /** "Service default/web" if the object occurs twice. The other one is served, so nothing is missing. */
  readonly repeated?: string;
  /** Set if the object has a field that its kind does not have. It is served without the field, so nothing is missing. */
  readonly unknown?: { readonly object: string; readonly field: string };
  /** The place in the file, if the file as a whole could be read. */
  readonly place?: Place;
}

/** Known gaps of the directory. */
interface ManifestGaps {
  /** Names of files, or the path of the directory, with unreadable parts. */
  readonly files: readonly string[];
  /** There are no objects. */
  readonly empty: boolean;
}

export interface ManifestSourceOptions {
  readonly directory: string;
  readonly decoder: ObjectDecoder;
  /** Used to follow changes after the first full list. If absent, changes are not followed. */
  readonly watch?: OpenInotify;
  onProblem(problem: ManifestProblem): void;
  /** Called once per skipped kind of object, and if the directory is watched in an unusual way. */
  onNote(note: string): void;
  /** Changes within this time are delivered together, ms. Default: 5. */
  readonly debounceMs?: number;
  /**
   * A file that is gone, has lost an object or cannot be parsed may be half written. Its new state is applied if it lasts this
   * long, ms. Default: 30.
   */
  readonly settleMs?: number;
  /** How often all files are compared with their last known versions, in case events were lost, ms. Default: DirectoryWatch's. */
  readonly checkEveryMs?: number;
}

/** The directory cannot be read at all. */
export class ManifestDirectoryError extends UserError {
  readonly code = "EMANIFESTS";
}

const DEFAULT_DEBOUNCE_MS = 5;
const DEFAULT_SETTLE_MS = 30;
/** Files read in advance while one is parsed. */
const READ_AHEAD = 4;
/** Larger buffers have memory of their own. */
const POOLED = Buffer.poolSize;
const ABSENT = "absent";

/** A version of a file, identified by `signature`. */
type FileVersion =
  | {
      readonly kind: "objects";
      readonly signature: string;
      readonly objects: FileObjects;
      readonly faults: readonly { readonly fault: string; readonly place: Place }[];
      readonly unknown: readonly { readonly fields: UnknownFields; readonly object: string; readonly place: Place }[];
    }
  | { readonly kind: "fault"; readonly signature: string; readonly problem: Omit<ManifestProblem, "served"> }
  | { readonly kind: "absent"; readonly signature: typeof ABSENT };

/**
 * Objects from the *.yaml, *.yml and *.json files of a directory. A file that cannot be read or parsed is reported, and keeps
 * its last good version. If several files contain the same object, the first by name counts.
 */
export class ManifestSource implements ObjectSource {
  readonly #index = new ObjectIndex();
  /** Shared by all stages of a file: with separate slices, their times would add up. */
  readonly #slice = new TimeSlice();
  /** Signature of each file's accepted version. */
  readonly #seen = new Map<string, string>();
  /** Versions that may be half written, and since when, ms of performance.now(). */
  readonly #unsettled = new Map<string, { readonly signature: string; readonly since: number }>();
  /** The last reported problems of each file. */
  readonly #problems = new Map<string, readonly ManifestProblem[]>();
  /** A problem has been fixed since the last flush, so a flush follows even if no object changed. */
  #recovered = false;
  /** Skipped kinds, such as "ConfigMap (v1)", and the place of the first object of each. */
  readonly skippedKinds = new Map<string, { readonly file: string; readonly place: Place }>();
  #watch: DirectoryWatch | undefined;
  #sink: ObjectSink | undefined;
  /** Files that may have changed. */
  #pending = new Set<string>();
  /** Any file may have changed. */
  #allPending = false;
  #loading: Promise<void> | undefined;
  readonly #runner = new BoundedFrequencyRunner(() => this.#refreshPending(), { gapMs: 0, maxRetryMs: Infinity });
  #stopped = false;

  constructor(private readonly options: ManifestSourceOptions) {}

  /** Rejects with `ManifestDirectoryError` if the directory does not exist or cannot be listed. */
  async start(sink: ObjectSink): Promise<void> {
    this.#loading = this.#loadAll(sink);
    try {
      await this.#loading;
    } catch (error) {
      this.#watch?.close();
      const reason = isNoEntry(error) ? "the directory does not exist" : reasonOf(error);
      throw new ManifestDirectoryError(`manifests ${this.options.directory}: ${reason}`, { cause: error });
    }
    if (this.#stopped) return;
    sink.synced();
    sink.flush();
    this.#sink = sink;
    // Files may have changed while they were read.
    this.#schedule();
  }

  /** The parts that are missing now. */
  gaps(): ManifestGaps {
    const lacking = ({ repeated, unknown }: ManifestProblem): boolean =>
      repeated === undefined && unknown === undefined;
    const files = [...this.#problems].filter(([, problems]) => problems.some(lacking));
    return { files: files.map(([file]) => file), empty: this.#index.empty };
  }

  /** All current problems, including objects that occur in several files. */
  problems(): ManifestProblem[] {
    return [...[...this.#problems.values()].flat(), ...this.#index.clashes().map(problemOf)];
  }

  /** The file whose object counts. @param name "namespace/name", or the name of a cluster-wide object. */
  fileOf(kind: string, name: string): string | undefined {
    return this.#index.fileOf(`${kind} ${name}`);
  }

  /** Resolves when the sink will not be called again. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#watch?.close();
    await this.#loading?.catch(() => undefined);
    await this.#runner.stop();
  }

  /** Reads the first list file by file, in order of their names, so that only a few are in memory at a time. */
  async #loadAll(sink: ObjectSink): Promise<void> {
    const { directory, checkEveryMs, watch: inotify } = this.options;
    if (!(await stat(directory)).isDirectory()) throw new Error("not a directory");
    if (inotify !== undefined) {
      this.#watch = new DirectoryWatch({
        directory,
        inotify,
        changed: (file) => this.#changed(file),
        note: (note) => this.options.onNote(note),
        relevant: isManifest,
        checkEveryMs,
      });
      // Watch before the first list, so that no change is lost between the two.
      this.#watch.open();
    }
    const { files, linked } = await listDirectory(directory);
    this.#watch?.follow(linked);
    if (files.length === 0) {
      this.options.onNote(`${directory} has no *.yaml, *.yml or *.json file yet`);
    }
    const ahead = files.slice(0, READ_AHEAD).map((file) => this.#read(file));
    for (const [at, file] of files.entries()) {
      const content = await ahead.shift();
      const next = files[at + READ_AHEAD];
      if (next !== undefined) ahead.push(this.#read(next));
      const version = await this.#parse(file, content);
      this.#accept(file, version);
      if (version.kind === "objects") await this.#deliver(new Map([[file, version.objects]]), sink, this.#slice);
      await this.#slice.yield();
      if (this.#stopped) return;
    }
  }

  /** @param file undefined for any file. */
  #changed(file: string | undefined): void {
    if (file === undefined) this.#allPending = true;
    else this.#pending.add(file);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#sink !== undefined) this.#runner.requestIn(this.options.debounceMs ?? DEFAULT_DEBOUNCE_MS);
  }

  async #refreshPending(): Promise<WriteOutcome> {
    const { directory } = this.options;
    try {
      const [all, pending] = [this.#allPending, this.#pending];
      this.#allPending = false;
      this.#pending = new Set();
      const files = new Set([...(all ? await this.#suspects() : []), ...pending]);
      if (this.#sink !== undefined) await this.#refresh([...files], this.#sink);
    } catch (error) {
      this.#report(directory, [{ file: directory, served: "last", reason: `cannot be read: ${reasonOf(error)}` }]);
    }
    return { ok: true };
  }

  async #refresh(files: string[], sink: ObjectSink): Promise<void> {
    const versions = new Map<string, FileObjects | undefined>();
    for (const file of files.sort()) {
      const version = await this.#parse(file, await this.#read(file));
      if (this.#stopped) return;
      if (!this.#isSettled(file, version)) continue;
      this.#accept(file, version);
      if (version.kind !== "fault") versions.set(file, version.kind === "objects" ? version.objects : undefined);
    }
    const changed = await this.#deliver(versions, sink);
    if (!changed && !this.#recovered) return;
    this.#recovered = false;
    sink.flush();
  }

  /** Files that differ from their last known versions, including removed ones. */
  async #suspects(): Promise<string[]> {
    const { directory } = this.options;
    const { files, linked } = await listDirectory(directory);
    this.#report(directory, []);
    this.#watch?.follow(linked);
    const present = new Set(files);
    const suspects = new Set([...this.#seen.keys()].filter((file) => !present.has(file)));
    for (const file of files) {
      const version = await fileVersion(join(directory, file));
      if (version === undefined || version !== this.#seen.get(file)) suspects.add(file);
    }
    return [...suspects];
  }

  /** Whether a version may be applied now. If not, schedules another check of the file. */
  #isSettled(file: string, version: FileVersion): boolean {
    const halfWritten =
      version.kind === "fault" ||
      (version.kind === "absent" ? this.#seen.has(file) : this.#index.lacks(file, version.objects));
    const now = performance.now();
    const before = this.#unsettled.get(file);
    const since = before?.signature === version.signature ? before.since : now;
    const wait = (this.options.settleMs ?? DEFAULT_SETTLE_MS) - (now - since);
    if (!halfWritten || wait <= 0) {
      this.#unsettled.delete(file);
      return true;
    }
    this.#unsettled.set(file, { signature: version.signature, since });
    this.#pending.add(file);
    this.#runner.requestIn(Math.ceil(wait));
    return false;
  }

  /** Remembers a version, and reports its problems. */
  #accept(file: string, version: FileVersion): void {
    if (version.kind === "absent") this.#seen.delete(file);
    else this.#seen.set(file, version.signature);
    this.#report(file, this.#problemsOf(file, version));
  }

  #problemsOf(file: string, version: FileVersion): ManifestProblem[] {
    if (version.kind === "absent") return [];
    if (version.kind === "fault") return [{ ...version.problem, served: this.#index.holds(file) ? "last" : "nothing" }];
    const ofRest = { file, served: "rest" } as const;
    return [
      ...version.faults.map(({ fault: reason, place }) => ({ ...ofRest, reason, place })),
      ...version.unknown.flatMap(({ fields, object, place }) => unknownProblems(file, object, place, fields)),
      ...version.objects.repeated.map(({ key, place }) => {
        return { ...ofRest, reason: `${key} occurs twice; the first one is used`, repeated: key, place };
      }),
    ];
  }

  /** Passes new versions of files on. Returns whether any object changed. */
  async #deliver(
    versions: ReadonlyMap<string, FileObjects | undefined>,
    sink: ObjectSink,
    slice?: TimeSlice,
  ): Promise<boolean> {
    const { changed, clashes } = await this.#index.update(versions, sink, slice);
    for (const clash of clashes) this.options.onProblem(problemOf(clash));
    return changed;
  }

  async #read(file: string): Promise<FileContent | FileFault | undefined> {
    try {
      return await readManifest(join(this.options.directory, file));
    } catch (error) {
      return error instanceof FileFault ? error : new FileFault(reasonOf(error));
    }
  }

  async #parse(file: string, content: FileContent | FileFault | undefined): Promise<FileVersion> {
    if (content === undefined) return { kind: "absent", signature: ABSENT };
    if (content instanceof FileFault) return faulty(file, content.message, content);
    const { signature, bytes } = content;
    if (bytes.length === 0) {
      const reason = "is empty, which may mean that it was truncated";
      return faulty(file, signature, new FileFault(reason, undefined, undefined, "write it again, or remove it"));
    }
    try {
      const values = await readDocuments(bytes, formatOf(file) ?? "yaml", this.#slice);
      // V8 would keep a large buffer until its next full collection. A small one shares its memory with others.
      if (bytes.length > POOLED && bytes.buffer instanceof ArrayBuffer) bytes.buffer.transfer(0);
      return { kind: "objects", signature, ...(await this.#decode(file, values)) };
    } catch (error) {
      if (error instanceof FileFault) return faulty(file, signature, error);
      throw error;
    }
  }

  async #decode(file: string, values: readonly unknown[]) {
    const objects: FileObjects = { objects: new Map(), repeated: [] };
    const faults: { fault: string; place: Place }[] = [];
    const unknown: { fields: UnknownFields; object: string; place: Place }[] = [];
    for (const item of itemsOf(values)) {
      if (this.#slice.spent) await this.#slice.yield();
      if ("fault" in item) faults.push(item);
      else if ("otherKind" in item) this.#skip(item.otherKind, file, item.place);
      else if (objects.objects.has(keyOf(item))) objects.repeated.push({ key: keyOf(item), place: item.place });
      else {
        const { kind, name, object, place } = item;
        const fields = unknownFields(kind, object);
        if (fields !== undefined) unknown.push({ fields, object: keyOf(item), place });
        if (this.#slice.spent) await this.#slice.yield();
        const pieces = this.options.decoder.decodeInPieces(kind, name, object);
        objects.objects.set(keyOf(item), await runInSlices(pieces, this.#slice));
      }
    }
    return { objects, faults, unknown };
  }

  #skip(kind: string, file: string, place: Place): void {
    if (this.skippedKinds.has(kind)) return;
    this.skippedKinds.set(kind, { file, place });
    this.options.onNote(`${kind} objects are skipped (the first one is in ${file})`);
  }

  /** Reports the problems of a file unless they are the last reported ones. */
  #report(file: string, problems: readonly ManifestProblem[]): void {
    const before = this.#problems.get(file);
    if (isDeepStrictEqual(problems, before ?? [])) return;
    this.#recovered ||= before !== undefined;
    if (problems.length === 0) this.#problems.delete(file);
    else this.#problems.set(file, problems);
    for (const problem of problems) this.options.onProblem(problem);
  }
}

function faulty(file: string, signature: string, fault: FileFault): FileVersion {
  const { message: reason, line, column, remedy } = fault;
  return { kind: "fault", signature, problem: { file, reason, line, column, remedy } };
}

function unknownProblems(
  file: string,
  object: string,
  place: Place,
  { named, total }: UnknownFields,
): ManifestProblem[] {
  const problems = named.map(({ field, path, meant }): ManifestProblem => {
    const hint = meant === undefined ? "" : ` (did you mean ${meant}?)`;
    const reason = `unknown field${hint}`;
    return { file, served: "rest", reason, unknown: { object, field }, place: [...place, ...path] };
  });
  if (total <= named.length) return problems;
  const reason = counted(total - named.length, "more unknown field");
  return [...problems, { file, served: "rest", reason, unknown: { object, field: "" }, place }];
}

function problemOf({ object, file, first }: FileClash): ManifestProblem {
  const reason = `${object} is also in ${first}, which comes first and is used`;
  return { file, served: "rest", reason, repeated: object };
}

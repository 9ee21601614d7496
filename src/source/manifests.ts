import { stat } from "node:fs/promises";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { DirectoryWatch } from "../base/directory-watch.js";
import { TimeSlice } from "../base/time-slice.js";
import { isNoEntry, reasonOf } from "../base/unknown.js";
import {
  fileVersion,
  formatOf,
  isManifest,
  listDirectory,
  readManifest,
  UnreadableFile,
  type FileContent,
} from "./directory.js";
import { readDocuments, SyntaxFault } from "./documents.js";
import { type FileClash, FileObjects, ObjectIndex } from "./object-index.js";
import { type Fault, type Place, sortInSteps } from "./objects.js";
import type { ObjectSink, ObjectSource } from "./types.js";

/**
 * What is served of a file that has a problem: all but what the problem is about; what was last understood of it; nothing, because
 * it has not been understood since the start.
 */
export type ManifestRemainder = "rest" | "last" | "nothing";

/** Something in the directory that cannot be used. */
export interface ManifestProblem {
  readonly file: string;
  readonly served: ManifestRemainder;
  /** From 1. */
  readonly line?: number;
  /** From 1. */
  readonly column?: number;
  readonly reason: string;
  /** What to do, where that is more than to correct the place. */
  readonly remedy?: string;
  /** "Service default/web", when the problem is one object's that is given twice: the other one is served. Nothing is missing then. */
  readonly repeated?: string;
  /** Where in the file it is, when the file as a whole was read. */
  readonly place?: Place;
}

/** What the directory lacks, as far as it was read. */
export interface ManifestGaps {
  /** Names of the files, or path of the directory, of which something cannot be read. */
  readonly files: readonly string[];
  /** There is no object at all. */
  readonly empty: boolean;
}

export interface ManifestSourceOptions {
  readonly directory: string;
  /** Follow changes after the first full list. Default false. */
  readonly watch?: boolean;
  onProblem(problem: ManifestProblem): void;
  /** Told once of every kind of object that is skipped, and of how the directory is watched when not as usual. */
  onNote(note: string): void;
  /** Changes this close together are delivered together, ms. Default 5. */
  readonly debounceMs?: number;
  /**
   * A file that is gone, has lost an object or does not parse may be half written: it is believed when it stays like that
   * for so long, ms. Default 30.
   */
  readonly settleMs?: number;
  /** How often all files are compared with what was last seen of them, for changes that the kernel did not tell of, ms. */
  readonly lookEveryMs?: number;
}

/** The directory cannot be read at all. */
export class ManifestDirectoryError extends Error {
  readonly code = "EMANIFESTS";
}

const DEFAULT_DEBOUNCE_MS = 5;
const DEFAULT_SETTLE_MS = 30;
/** Files that are read while one is parsed: few, because what comes of reading them is copied in one turn of the event loop. */
const READ_AHEAD = 4;
const ABSENT = "absent";

/** What a look at a file came to. `signature` names its version. */
type Look =
  | {
      readonly kind: "objects";
      readonly signature: string;
      readonly objects: FileObjects;
      readonly faults: readonly Fault[];
    }
  | { readonly kind: "fault"; readonly signature: string; readonly problem: Omit<ManifestProblem, "served"> }
  | { readonly kind: "absent"; readonly signature: typeof ABSENT };

/**
 * Objects from the *.yaml, *.yml and *.json files of a directory. A file that cannot be read or parsed is named and keeps
 * its last good version. Of several files that hold the same object the first by name counts.
 */
export class ManifestSource implements ObjectSource {
  readonly #options: ManifestSourceOptions;
  readonly #debounceMs: number;
  readonly #settleMs: number;
  readonly #index: ObjectIndex;
  /** One for all stages of a file: each with its own would have its time in the turn that the one before has used up. */
  readonly #timeSlice = new TimeSlice();
  /** Signature of each file as it was last taken over. */
  readonly #seen = new Map<string, string>();
  /** Versions that are not believed yet, and since when, ms of performance.now(). */
  readonly #doubted = new Map<string, { readonly signature: string; readonly since: number }>();
  /** The problems of a file, as they were last named. */
  readonly #named = new Map<string, readonly ManifestProblem[]>();
  /** A problem has gone since the last flush: whoever waits for that must be told, even when no object changed. */
  #mended = false;
  /** Kinds that are skipped, "ConfigMap (v1)", and where the first object of each was found. */
  readonly skippedKinds = new Map<string, { readonly file: string; readonly place: Place }>();
  readonly #timers = new Set<NodeJS.Timeout>();
  #watch: DirectoryWatch | undefined;
  #sink: ObjectSink | undefined;
  #pending: Set<string> | "all" | undefined;
  #scheduled = false;
  #working: Promise<void> | undefined;
  #stopped = false;

  constructor(options: ManifestSourceOptions) {
    this.#options = options;
    this.#debounceMs = options.debounceMs ?? DEFAULT_DEBOUNCE_MS;
    this.#settleMs = options.settleMs ?? DEFAULT_SETTLE_MS;
    this.#index = new ObjectIndex();
  }

  /** Rejects with `ManifestDirectoryError` when there is no such directory, or it cannot be listed. */
  async start(sink: ObjectSink): Promise<void> {
    this.#working = this.#loadAll(sink);
    try {
      await this.#working;
    } catch (error) {
      this.#watch?.close();
      const reason = isNoEntry(error) ? "there is no such directory" : reasonOf(error);
      throw new ManifestDirectoryError(`manifests ${this.#options.directory}: ${reason}`, { cause: error });
    } finally {
      this.#working = undefined;
    }
    if (this.#stopped) return;
    sink.synced();
    sink.flush();
    this.#sink = sink;
    if (this.#pending !== undefined) this.#schedule();
  }

  /** What is missing at present. */
  gaps(): ManifestGaps {
    const files = [...this.#named].filter(([, problems]) => problems.some(({ repeated }) => repeated === undefined));
    return { files: files.map(([file]) => file), empty: this.#index.empty };
  }

  /** Everything that is wrong at present, objects that are in several files included. */
  problems(): ManifestProblem[] {
    return [...[...this.#named.values()].flat(), ...this.#index.clashes().map(problemOf)];
  }

  /** The file whose object counts. `name` is "namespace/name", or the name of a cluster-wide object. */
  fileOf(kind: string, name: string): string | undefined {
    return this.#index.fileOf(`${kind} ${name}`);
  }

  /** Resolves when nothing more will reach the sink. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#watch?.close();
    for (const timer of this.#timers) clearTimeout(timer);
    await this.#working?.catch(() => undefined);
  }

  /** The first look: file by file in order of their names, so that no more than a few are in memory at a time. */
  async #loadAll(sink: ObjectSink): Promise<void> {
    const { directory } = this.#options;
    if (!(await stat(directory)).isDirectory()) throw new Error("it is not a directory");
    if (this.#options.watch === true) {
      // Before the first look, so that nothing falls between the two.
      this.#watch = new DirectoryWatch(
        directory,
        (file) => this.#changed(file),
        (note) => this.#options.onNote(note),
        isManifest,
        this.#options.lookEveryMs,
      );
      this.#watch.open();
    }
    const { files, linked } = await listDirectory(directory);
    this.#watch?.follow(linked);
    if (files.length === 0) this.#options.onNote(`there is no *.yaml, *.yml or *.json file in ${directory} yet`);
    const ahead = files.slice(0, READ_AHEAD).map((file) => this.#read(file));
    for (const [at, file] of files.entries()) {
      const content = await ahead.shift();
      const next = files[at + READ_AHEAD];
      if (next !== undefined) ahead.push(this.#read(next));
      const look = await this.#parse(file, content);
      this.#accept(file, look);
      if (look.kind === "objects") await this.#deliver(new Map([[file, look.objects]]), sink, true);
      await this.#timeSlice.yield();
      if (this.#stopped) return;
    }
  }

  /** `undefined`: any file. */
  #changed(file: string | undefined): void {
    if (file === undefined) this.#pending = "all";
    else if (this.#pending === undefined) this.#pending = new Set([file]);
    else if (this.#pending !== "all") this.#pending.add(file);
    this.#schedule();
  }

  #schedule(): void {
    // What comes in while work goes on waits; the end of the work schedules it.
    if (this.#scheduled || this.#working !== undefined || this.#sink === undefined) return;
    this.#scheduled = true;
    const sink = this.#sink;
    this.#after(this.#debounceMs, () => {
      this.#scheduled = false;
      const pending = this.#pending;
      if (pending === undefined) return;
      this.#pending = undefined;
      this.#working = this.#refresh(pending, sink)
        .catch((error: unknown) => {
          const { directory } = this.#options;
          this.#name(directory, [{ file: directory, served: "last", reason: `cannot be read: ${reasonOf(error)}` }]);
        })
        .finally(() => {
          this.#working = undefined;
          if (this.#pending !== undefined) this.#schedule();
        });
    });
  }

  async #refresh(pending: ReadonlySet<string> | "all", sink: ObjectSink): Promise<void> {
    const files = pending === "all" ? await this.#suspects() : [...pending].sort();
    const versions = new Map<string, FileObjects | undefined>();
    for (const file of files) {
      const look = await this.#parse(file, await this.#read(file));
      if (this.#stopped) return;
      if (!this.#believes(file, look)) continue;
      this.#accept(file, look);
      if (look.kind === "absent") versions.set(file, undefined);
      if (look.kind === "objects") versions.set(file, look.objects);
    }
    const changed = await this.#deliver(versions, sink);
    if (!changed && !this.#mended) return;
    this.#mended = false;
    sink.flush();
  }

  /** The files that differ from what was last seen of them, those that are gone included. */
  async #suspects(): Promise<string[]> {
    const { directory } = this.#options;
    const { files, linked } = await listDirectory(directory);
    this.#name(directory, []);
    this.#watch?.follow(linked);
    const present = new Set(files);
    const suspects = [...this.#seen.keys()].filter((file) => !present.has(file));
    for (const file of files) {
      const version = await fileVersion(join(directory, file)).catch(() => undefined);
      if (version === undefined || version !== this.#seen.get(file)) suspects.push(file);
    }
    return suspects.sort();
  }

  /** Whether a version may be taken over now; if not, the file is looked at again. */
  #believes(file: string, look: Look): boolean {
    const doubtful =
      look.kind === "fault" || (look.kind === "absent" ? this.#seen.has(file) : this.#index.lacks(file, look.objects));
    const now = performance.now();
    const before = this.#doubted.get(file);
    const since = before?.signature === look.signature ? before.since : now;
    const wait = this.#settleMs - (now - since);
    if (!doubtful || wait <= 0) {
      this.#doubted.delete(file);
      return true;
    }
    this.#doubted.set(file, { signature: look.signature, since });
    this.#after(Math.ceil(wait), () => this.#changed(file));
    return false;
  }

  /** Remembers a version and names what is wrong with it. */
  #accept(file: string, look: Look): void {
    if (look.kind === "absent") this.#seen.delete(file);
    else this.#seen.set(file, look.signature);
    switch (look.kind) {
      case "absent":
        return this.#name(file, []);
      case "fault":
        return this.#name(file, [{ ...look.problem, served: this.#index.holds(file) ? "last" : "nothing" }]);
      case "objects": {
        const faults = look.faults.map(({ reason, place }): ManifestProblem => ({
          file,
          served: "rest",
          reason,
          place,
        }));
        const repeated = look.objects.repeated.map(({ key, place }): ManifestProblem => {
          const reason = `${key} is there twice: the first one counts`;
          return { file, served: "rest", reason, repeated: key, place };
        });
        return this.#name(file, [...faults, ...repeated]);
      }
    }
  }

  /**
   * Tells the sink of new versions of files. Returns whether there was anything to tell.
   * @param inTurns the event loop has its turns meanwhile. By default it has none: changes that were made together are told together.
   */
  async #deliver(
    versions: ReadonlyMap<string, FileObjects | undefined>,
    sink: ObjectSink,
    inTurns = false,
  ): Promise<boolean> {
    const update = this.#index.update(versions, sink);
    let step = update.next();
    for (; step.done !== true; step = update.next()) {
      if (!inTurns || !this.#timeSlice.spent) continue;
      await this.#timeSlice.yield();
      if (this.#stopped) return false;
    }
    const { changed, clashes, wanted } = step.value;
    for (const clash of clashes) this.#options.onProblem(problemOf(clash));
    // Objects that now count but whose file was not looked at. One that cannot be read now leaves its objects as they
    // are until it can.
    const further = new Map<string, FileObjects | undefined>();
    for (const file of wanted) {
      const look = await this.#parse(file, await this.#read(file));
      if (look.kind === "objects") further.set(file, look.objects);
    }
    if (further.size === 0 || this.#stopped) return changed;
    return (await this.#deliver(further, sink, inTurns)) || changed;
  }

  async #read(file: string): Promise<FileContent | UnreadableFile | undefined> {
    try {
      return await readManifest(join(this.#options.directory, file));
    } catch (error) {
      return error instanceof UnreadableFile ? error : new UnreadableFile(reasonOf(error), { cause: error });
    }
  }

  async #parse(file: string, content: FileContent | UnreadableFile | undefined): Promise<Look> {
    if (content === undefined) return { kind: "absent", signature: ABSENT };
    if (content instanceof UnreadableFile) {
      const { message: reason, remedy } = content;
      return { kind: "fault", signature: reason, problem: { file, reason, ...(remedy !== undefined && { remedy }) } };
    }
    const { signature } = content;
    if (content.bytes.length === 0) {
      const [reason, remedy] = ["is empty, as if it was cut off", "write it again, or remove it"];
      return { kind: "fault", signature, problem: { file, reason, remedy } };
    }
    try {
      const values = await readDocuments(content.bytes, formatOf(file) ?? "yaml", this.#timeSlice);
      giveBack(content.bytes);
      const objects = new FileObjects(this.#options.watch ?? false);
      const sorting = sortInSteps(values, (object) => objects.add(object));
      let step = sorting.next();
      for (; step.done !== true; step = sorting.next()) if (this.#timeSlice.spent) await this.#timeSlice.yield();
      const { otherKinds, faults } = step.value;
      for (const [kind, place] of otherKinds) {
        if (this.skippedKinds.has(kind)) continue;
        this.skippedKinds.set(kind, { file, place });
        this.#options.onNote(`${kind} objects are skipped (the first one is in ${file})`);
      }
      return { kind: "objects", signature, objects, faults };
    } catch (error) {
      if (!(error instanceof SyntaxFault)) throw error;
      const { message: reason, line, column, remedy } = error;
      const problem = { file, line, column, reason, ...(remedy !== undefined && { remedy }) };
      return { kind: "fault", signature, problem };
    }
  }

  /** Names the problems of a file unless they are those named last. */
  #name(file: string, problems: readonly ManifestProblem[]): void {
    const before = this.#named.get(file);
    if (isDeepStrictEqual(problems, before ?? [])) return;
    this.#mended ||= before !== undefined;
    if (problems.length === 0) this.#named.delete(file);
    else this.#named.set(file, problems);
    for (const problem of problems) this.#options.onProblem(problem);
  }

  #after(ms: number, work: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      if (!this.#stopped) work();
    }, ms);
    this.#timers.add(timer);
  }
}

function problemOf({ object, file, first }: FileClash): ManifestProblem {
  const reason = `${object} is in ${first} too, which comes first: that one counts`;
  return { file, served: "rest", reason, repeated: object };
}

/** V8 would keep the memory until its next full collection: a file that was read ahead is older than what it collects before. */
function giveBack({ buffer, byteLength }: Buffer): void {
  // A small one may share its memory with others.
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) buffer.transfer(0);
}

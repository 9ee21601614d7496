/** A directory of manifest files: what is in it, and when it changes. */
import { watch, type BigIntStats, type FSWatcher } from "node:fs";
import { open, readdir, realpath, stat } from "node:fs/promises";
import { basename, dirname, extname, join, resolve } from "node:path";

export interface FileContent {
  /** Differs after every write that the file system's clock can tell from the one before. */
  readonly signature: string;
  readonly text: string;
}

/** The file is there but is nothing that can be read. */
export class UnreadableFile extends Error {
  readonly code = "EUNREADABLE";
}

export function formatOf(file: string): "json" | "yaml" | undefined {
  switch (extname(file).toLowerCase()) {
    case ".json":
      return "json";
    case ".yaml":
    case ".yml":
      return "yaml";
    default:
      return undefined;
  }
}

/** Hidden files are editors' leavings. */
function isManifest(file: string): boolean {
  return !file.startsWith(".") && formatOf(file) !== undefined;
}

export interface Listing {
  /** Manifest files by name, sorted. */
  readonly files: readonly string[];
  /** Directories outside this one that files here are links into. */
  readonly linked: ReadonlySet<string>;
}

/** Throws what readdir throws. */
export async function listDirectory(directory: string): Promise<Listing> {
  const files: string[] = [];
  const linked = new Set<string>();
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    if (!isManifest(entry.name)) continue;
    if (entry.isDirectory()) continue;
    files.push(entry.name);
    if (!entry.isSymbolicLink()) continue;
    const target = await realpath(join(directory, entry.name)).catch(() => undefined);
    if (target !== undefined) linked.add(dirname(target));
  }
  linked.delete(await realpath(directory));
  return { files: files.sort(), linked };
}

/** Signature of a file; undefined when there is no such file. Throws `UnreadableFile`. */
export async function fileVersion(path: string): Promise<string | undefined> {
  try {
    const stats = await stat(path, { bigint: true });
    if (!stats.isFile()) throw new UnreadableFile("is not a regular file");
    return signatureOf(stats);
  } catch (error) {
    return absentOrThrow(error);
  }
}

/** Undefined when there is no such file. Throws `UnreadableFile`. */
export async function readManifest(path: string): Promise<FileContent | undefined> {
  // Opening a pipe would wait for its writer.
  if ((await fileVersion(path)) === undefined) return undefined;
  try {
    const handle = await open(path);
    try {
      const signature = signatureOf(await handle.stat({ bigint: true }));
      return { signature, text: await handle.readFile("utf8") };
    } finally {
      await handle.close();
    }
  } catch (error) {
    return absentOrThrow(error);
  }
}

function signatureOf(stats: BigIntStats): string {
  const { ino, dev, size, mtimeNs, ctimeNs } = stats;
  return [dev, ino, size, mtimeNs, ctimeNs].join(" ");
}

function absentOrThrow(error: unknown): undefined {
  if (error instanceof UnreadableFile) throw error;
  if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
  throw new UnreadableFile(`cannot be read: ${error instanceof Error ? error.message : String(error)}`, {
    cause: error,
  });
}

/** How often to look where the kernel cannot tell of changes, ms. */
const POLL_MS = 1000;

/**
 * Tells which files of a directory may have changed: a name, or undefined for "look at all of them". Watches directories,
 * not files: one inotify watch for any number of files, and a file that is replaced by rename needs no new one. Follows
 * links out of the directory (`follow`), such as those of a mounted ConfigMap, and the directory itself being replaced.
 */
export class DirectoryWatch {
  readonly #directory: string;
  readonly #changed: (file: string | undefined) => void;
  readonly #note: (note: string) => void;
  readonly #relevant: (file: string) => boolean;
  #own: FSWatcher | undefined;
  #parent: FSWatcher | undefined;
  readonly #linked = new Map<string, FSWatcher>();
  #poll: NodeJS.Timeout | undefined;
  #closed = false;

  /** @param relevant names of the files whose changes are told. */
  constructor(
    directory: string,
    changed: (file: string | undefined) => void,
    note: (note: string) => void,
    relevant: (file: string) => boolean = isManifest,
  ) {
    this.#relevant = relevant;
    this.#directory = resolve(directory);
    this.#changed = changed;
    this.#note = note;
  }

  open(): void {
    this.#openOwn();
    const name = basename(this.#directory);
    this.#parent = this.#watch(dirname(this.#directory), (file) => {
      if (file !== name) return;
      this.#own?.close();
      this.#openOwn();
      this.#changed(undefined);
    });
  }

  /** Watches exactly these directories besides. */
  follow(directories: ReadonlySet<string>): void {
    for (const [directory, watcher] of this.#linked) {
      if (directories.has(directory)) continue;
      watcher.close();
      this.#linked.delete(directory);
    }
    for (const directory of directories) {
      if (this.#linked.has(directory)) continue;
      const watcher = this.#watch(directory, () => this.#changed(undefined));
      if (watcher !== undefined) this.#linked.set(directory, watcher);
    }
  }

  close(): void {
    this.#closed = true;
    clearInterval(this.#poll);
    this.#own?.close();
    this.#parent?.close();
    this.follow(new Set());
  }

  #openOwn(): void {
    this.#own = this.#watch(this.#directory, (file) => {
      if (file === null) this.#changed(undefined);
      else if (this.#relevant(file)) this.#changed(file);
      // A mounted ConfigMap changes by its link ..data being replaced; the names of its files stay.
      else if (file.startsWith("..")) this.#changed(undefined);
    });
  }

  #watch(directory: string, changed: (file: string | null) => void): FSWatcher | undefined {
    const failed = (error: unknown) => {
      // A directory that is gone is told by its parent.
      if (error instanceof Error && "code" in error && error.code === "ENOENT") return;
      this.#startPolling(directory, error);
    };
    try {
      const watcher = watch(directory, (_event, file) => {
        if (!this.#closed) changed(file);
      });
      watcher.on("error", failed);
      return watcher;
    } catch (error) {
      failed(error);
      return undefined;
    }
  }

  #startPolling(directory: string, error: unknown): void {
    if (this.#poll !== undefined || this.#closed) return;
    const reason = error instanceof Error ? error.message : String(error);
    this.#note(`${directory} cannot be watched (${reason}): looking every ${POLL_MS} ms instead`);
    this.#poll = setInterval(() => this.#changed(undefined), POLL_MS);
  }
}

/** When a directory changes. */
import { watch, type FSWatcher } from "node:fs";
import { basename, dirname, resolve } from "node:path";
import { isNoEntry, reasonOf } from "./unknown.js";

/** How often to look where the kernel cannot tell of changes, ms. */
const POLL_MS = 1000;
/**
 * How often to look although the kernel tells of changes, ms. Its queue holds fs.inotify.max_queued_events (16,384) for all watches of a
 * process; what comes when it is full is dropped, and libuv passes over the event that says so (IN_Q_OVERFLOW, watch -1).
 */
const LOOK_EVERY_MS = 2 * 60_000;
/** Events without a pause between them after which some may have been dropped: a look costs little beside what they brought. */
const BURST_EVENTS = 512;
/** Without an event for so long, ms, a burst is over. */
const BURST_OVER_MS = 100;

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
  readonly #lookEveryMs: number;
  #poll: NodeJS.Timeout | undefined;
  #look: NodeJS.Timeout | undefined;
  /** Events since the last pause, and what runs when the next one comes. */
  #events = 0;
  #burstOver: NodeJS.Timeout | undefined;
  #closed = false;

  /**
   * @param relevant names of the files whose changes are told.
   * @param lookEveryMs how often it tells "look at all of them" by itself.
   */
  constructor(
    directory: string,
    changed: (file: string | undefined) => void,
    note: (note: string) => void,
    relevant: (file: string) => boolean,
    lookEveryMs = LOOK_EVERY_MS,
  ) {
    this.#lookEveryMs = lookEveryMs;
    this.#relevant = relevant;
    this.#directory = resolve(directory);
    this.#changed = changed;
    this.#note = note;
  }

  open(): void {
    this.#openOwn();
    this.#look = setInterval(() => this.#changed(undefined), this.#lookEveryMs);
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
    clearInterval(this.#look);
    clearTimeout(this.#burstOver);
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
      if (isNoEntry(error)) return;
      this.#startPolling(directory, error);
    };
    try {
      const watcher = watch(directory, (_event, file) => {
        if (this.#closed) return;
        this.#count();
        changed(file);
      });
      watcher.on("error", failed);
      return watcher;
    } catch (error) {
      failed(error);
      return undefined;
    }
  }

  #count(): void {
    this.#events++;
    if (this.#burstOver !== undefined) return void this.#burstOver.refresh();
    this.#burstOver = setTimeout(() => {
      this.#burstOver = undefined;
      const many = this.#events >= BURST_EVENTS;
      this.#events = 0;
      if (many) this.#changed(undefined);
    }, BURST_OVER_MS);
  }

  #startPolling(directory: string, error: unknown): void {
    if (this.#poll !== undefined || this.#closed) return;
    const reason = reasonOf(error);
    this.#note(`${directory} cannot be watched (${reason}): looking every ${POLL_MS} ms instead`);
    this.#poll = setInterval(() => this.#changed(undefined), POLL_MS);
  }
}

/** Watches a directory for changes. */
import { durationText } from "./duration-text.js";
import { basename, dirname, resolve } from "node:path";
import { reasonOf } from "./unknown.js";

/** An event of inotify(7). */
export interface InotifyEvent {
  /** Descriptor of the watch; -1 for an overflow. */
  readonly watch: number;
  readonly mask: number;
  /** Name of the file in the watched directory; "" for the directory itself. */
  readonly name: string;
}

/** An inotify instance. */
export interface Inotify {
  /**
   * Returns the watch descriptor, which is the same for the same inode, or undefined if there is no such directory. Throws
   * for other errors.
   */
  add(path: string, mask: number): number | undefined;
  /** Also succeeds if there is no such watch. */
  remove(watch: number): void;
  /** No event is reported afterwards. */
  close(): void;
}

/** `onEvents` receives events in order. Throws if the system refuses another instance. */
export type OpenInotify = (onEvents: (events: readonly InotifyEvent[]) => void) => Inotify;

/** include/uapi/linux/inotify.h. Without IN_MODIFY, because a log file in the same directory would wake us at each write. */
const In = {
  closeWrite: 0x8,
  movedFrom: 0x40,
  movedTo: 0x80,
  create: 0x100,
  delete: 0x200,
  deleteSelf: 0x400,
  moveSelf: 0x800,
  overflow: 0x4000,
  ignored: 0x8000,
  onlyDir: 0x0100_0000,
  maskAdd: 0x2000_0000,
} as const;

const NAMES = In.movedFrom | In.movedTo | In.create | In.delete;
const SELF = In.deleteSelf | In.moveSelf | In.ignored;
/** Watches of the same inode share its mask, for example if a directory is its own parent. */
const WATCH = In.deleteSelf | In.moveSelf | In.onlyDir | In.maskAdd;

/** Interval of checks if the kernel cannot report changes, ms. */
const POLL_MS = 1000;
/** Interval of checks although the kernel reports changes, ms: it does not see the changes of some file systems. */
const CHECK_EVERY_MS = 2 * 60_000;

interface Watched {
  readonly directory: string;
  readonly mask: number;
  /** Called when a file in it was added, removed or written. */
  readonly changed: (file: string) => void;
  /** Undefined if the directory does not exist or cannot be watched. */
  watch: number | undefined;
}

interface DirectoryWatchOptions {
  readonly directory: string;
  readonly inotify: OpenInotify;
  /** Called with a file that may have changed, or with undefined if any of them may have. */
  readonly changed: (file: string | undefined) => void;
  /** Receives messages for the log. */
  readonly note: (note: string) => void;
  /** Whether to report changes of the file with this name. */
  readonly relevant: (file: string) => boolean;
  /** Interval at which it reports that any file may have changed, ms. Default: two minutes. */
  readonly checkEveryMs?: number;
}

/**
 * Reports which files of a directory may have changed. It watches directories, not files: one inotify watch covers any
 * number of files, and a file replaced by rename needs no new watch. It follows links out of the directory (`follow`), such
 * as those of a mounted ConfigMap, and notices if the directory itself is replaced.
 */
export class DirectoryWatch {
  readonly #own: Watched;
  readonly #parent: Watched;
  #linked: readonly Watched[] = [];
  /** Undefined if the system refuses an instance. */
  #inotify: Inotify | undefined;
  /** The next check. */
  #timer: NodeJS.Timeout | undefined;
  /** A directory cannot be watched. */
  #refused = false;
  #closed = false;

  constructor(private readonly options: DirectoryWatchOptions) {
    const directory = resolve(options.directory);
    this.#own = { directory, mask: NAMES | In.closeWrite, changed: (file) => this.#told(file), watch: undefined };
    this.#parent = {
      directory: dirname(directory),
      mask: NAMES,
      changed: (file) => void (file === basename(directory) && this.#replaced()),
      watch: undefined,
    };
  }

  open(): void {
    try {
      this.#inotify = this.options.inotify((events) => this.#receive(events));
    } catch (error) {
      this.#noteRefusal(this.#own.directory, error);
    }
    this.#renew();
  }

  /** Watches exactly these linked files, in addition to the directory: names by directory. */
  follow(files: ReadonlyMap<string, ReadonlySet<string>>): void {
    const former = this.#linked;
    this.#linked = Array.from(files, ([directory, names]) => ({
      directory,
      mask: NAMES | In.closeWrite,
      changed: (file) => void (names.has(file) && this.options.changed(undefined)),
      watch: undefined,
    }));
    for (const watched of this.#linked) this.#watch(watched);
    for (const watched of former) this.#unwatch(watched);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#inotify?.close();
  }

  #receive(events: readonly InotifyEvent[]): void {
    for (const { watch, mask, name } of events) {
      if (this.#closed) return;
      if ((mask & In.overflow) !== 0) this.#replaced();
      for (const watched of this.#all()) {
        if (watched.watch !== watch) continue;
        if ((mask & In.ignored) !== 0) watched.watch = undefined;
        if ((mask & SELF) !== 0) this.#replaced();
        else if ((mask & watched.mask) !== 0) watched.changed(name);
      }
    }
  }

  #told(file: string): void {
    if (this.options.relevant(file)) this.options.changed(file);
    // A mounted ConfigMap changes when its link ..data is replaced; the names of its files stay.
    else if (file.startsWith("..")) this.options.changed(undefined);
  }

  /** A directory may have been removed, created or replaced, or events may have been lost. */
  #replaced(): void {
    this.#renew();
    this.options.changed(undefined);
  }

  /** Watches the directories that the paths lead to now, and checks again later: soon if one is not watched. */
  #renew(): void {
    for (const watched of this.#all()) this.#watch(watched);
    clearTimeout(this.#timer);
    if (this.#closed) return;
    const { checkEveryMs = CHECK_EVERY_MS } = this.options;
    const blind = this.#refused || this.#own.watch === undefined || this.#parent.watch === undefined;
    this.#timer = setTimeout(() => this.#replaced(), blind ? POLL_MS : checkEveryMs);
  }

  #watch(watched: Watched): void {
    if (this.#closed || this.#inotify === undefined) return;
    let watch: number | undefined;
    try {
      watch = this.#inotify.add(watched.directory, watched.mask | WATCH);
    } catch (error) {
      this.#noteRefusal(watched.directory, error);
    }
    if (watch === watched.watch) return;
    this.#unwatch(watched);
    watched.watch = watch;
  }

  #unwatch(watched: Watched): void {
    const { watch } = watched;
    watched.watch = undefined;
    if (watch !== undefined && this.#all().every((other) => other.watch !== watch)) this.#inotify?.remove(watch);
  }

  #all(): readonly Watched[] {
    return [this.#own, this.#parent, ...this.#linked];
  }

  #noteRefusal(directory: string, error: unknown): void {
    if (this.#refused) return;
    this.#refused = true;
    const reason = reasonOf(error);
    this.options.note(`${directory} cannot be watched (${reason}), so it is checked every ${durationText(POLL_MS)}`);
  }
}

/** Watches a configuration file, including a ConfigMap's links, editors' renames, and deletion and re-creation. */
import { readFile, realpath } from "node:fs/promises";
import { basename, dirname, resolve } from "node:path";
import { DirectoryWatch, type OpenInotify } from "../base/directory-watch.js";
import { reasonOf } from "../base/unknown.js";
import type { ConfigDocument } from "./document.js";
import type { LoadedConfig } from "./load.js";
import { ConfigError } from "./proxy-config.js";

/**
 * Wait after the last event before the file is read, ms: an editor writes a file in pieces, and a ConfigMap arrives in several
 * events.
 */
const SETTLE_MS = 100;

interface ConfigWatchOptions {
  readonly path: string;
  readonly inotify: OpenInotify;
  /** The content in use. */
  readonly text: string;
  /** The configuration in `text`. */
  readonly document: ConfigDocument;
  /** Parses other content. Throws `ConfigError`. */
  readonly parse: (text: string) => LoadedConfig;
  /** The file has a different, valid meaning. Called once; nothing is watched afterwards. */
  readonly onChange: (loaded: LoadedConfig) => void;
  /** The file is invalid; called once per invalid content. */
  readonly onInvalid: (error: ConfigError) => void;
  /** Receives other messages for the log. */
  readonly onNote: (note: string) => void;
}

/** Starts watching, and also notices changes since the content was read. Returns a function that stops it. */
export function watchConfig(options: ConfigWatchOptions): () => void {
  const watch = new ConfigWatch(options);
  watch.open();
  return () => watch.close();
}

class ConfigWatch {
  readonly #options: ConfigWatchOptions;
  readonly #path: string;
  readonly #directory: DirectoryWatch;
  /** The content last read; undefined if there was no file. */
  #seen: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #checking = false;
  #again = false;
  #closed = false;

  constructor(options: ConfigWatchOptions) {
    this.#options = options;
    this.#path = resolve(options.path);
    this.#seen = options.text;
    const name = basename(this.#path);
    this.#directory = new DirectoryWatch({
      directory: dirname(this.#path),
      inotify: options.inotify,
      changed: () => this.#schedule(),
      note: options.onNote,
      relevant: (file) => file === name,
    });
  }

  open(): void {
    this.#directory.open();
    this.#schedule();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#directory.close();
  }

  #schedule(): void {
    if (this.#closed) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#check(), SETTLE_MS);
  }

  /** Never rejects. Runs one read at a time. An event during a read is handled after it. */
  async #check(): Promise<void> {
    if (this.#checking) {
      this.#again = true;
      return;
    }
    this.#checking = true;
    try {
      await this.#followLinks();
      const text = await this.#read();
      if (!this.#closed) this.#judge(text);
    } finally {
      this.#checking = false;
    }
    if (!this.#again) return;
    this.#again = false;
    this.#schedule();
  }

  /** Also watches the file's real path, if that is elsewhere. */
  async #followLinks(): Promise<void> {
    const real = await realpath(this.#path).catch(() => this.#path);
    const own = await realpath(dirname(this.#path)).catch(() => dirname(this.#path));
    if (this.#closed) return;
    const directory = dirname(real);
    this.#directory.follow(new Map(directory === own ? [] : [[directory, new Set([basename(real)])]]));
  }

  /** Returns undefined if there is nothing readable. */
  async #read(): Promise<string | undefined> {
    try {
      return await readFile(this.#path, "utf8");
    } catch (error) {
      const reason = reasonOf(error);
      if (this.#seen !== undefined && !this.#closed) {
        this.#options.onNote(`configuration file unreadable (${reason}); keeping the current configuration`);
      }
      return undefined;
    }
  }

  #judge(text: string | undefined): void {
    const { text: used, document, parse, onChange, onInvalid, onNote } = this.#options;
    if (text === this.#seen) return;
    this.#seen = text;
    if (text === undefined || text === used) return;
    let loaded: LoadedConfig;
    try {
      loaded = parse(text);
    } catch (error) {
      const whole = { path: "", message: reasonOf(error) };
      onInvalid(error instanceof ConfigError ? error : new ConfigError(this.#path, [whole], { cause: error }));
      return;
    }
    if (JSON.stringify(loaded.document) === JSON.stringify(document)) {
      onNote("configuration file changed without effect");
      return;
    }
    this.close();
    onChange(loaded);
  }
}

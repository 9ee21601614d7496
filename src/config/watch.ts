/** Watches a configuration file: a ConfigMap's links, editors' renames, deletion and return included. */
import { readFile, realpath } from "node:fs/promises";
import { basename, dirname, resolve } from "node:path";
import { DirectoryWatch, type OpenInotify } from "../base/directory-watch.js";
import { reasonOf } from "../base/unknown.js";
import type { ConfigDocument } from "./document.js";
import type { LoadedConfig } from "./load.js";
import { ConfigError } from "./proxy-config.js";

/** An editor writes a file in pieces, and a ConfigMap arrives in several events: looked at when this long, ms, nothing more came. */
const SETTLE_MS = 100;

export interface ConfigWatchOptions {
  readonly path: string;
  readonly inotify: OpenInotify;
  /** The content that is in use. */
  readonly text: string;
  /** What it means. */
  readonly document: ConfigDocument;
  /** The meaning of another content. Throws `ConfigError`. */
  readonly parse: (text: string) => LoadedConfig;
  /** The file means something else now, and is right. Called once; nothing is watched any more. */
  readonly onChange: (loaded: LoadedConfig) => void;
  /** It is wrong now; called once for each wrong content. */
  readonly onInvalid: (error: ConfigError) => void;
  /** Receives what else is worth a line in the log. */
  readonly onNote: (note: string) => void;
}

/** Starts watching; what changed since the content was read is noticed too. Returns how to stop. */
export function watchConfig(options: ConfigWatchOptions): () => void {
  const watch = new ConfigWatch(options);
  watch.open();
  return () => watch.close();
}

class ConfigWatch {
  readonly #options: ConfigWatchOptions;
  readonly #path: string;
  readonly #directory: DirectoryWatch;
  /** The content last looked at; undefined: there was no file. */
  #seen: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #looking = false;
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
    this.#timer = setTimeout(() => void this.#look(), SETTLE_MS);
  }

  /** Never rejects. One look at a time: an event that comes meanwhile is looked at afterwards. */
  async #look(): Promise<void> {
    if (this.#looking) {
      this.#again = true;
      return;
    }
    this.#looking = true;
    try {
      await this.#followLinks();
      const text = await this.#read();
      if (!this.#closed) this.#judge(text);
    } finally {
      this.#looking = false;
    }
    if (!this.#again) return;
    this.#again = false;
    this.#schedule();
  }

  /** Where the file really is, when that is elsewhere. */
  async #followLinks(): Promise<void> {
    const real = await realpath(this.#path).catch(() => this.#path);
    const own = await realpath(dirname(this.#path)).catch(() => dirname(this.#path));
    if (this.#closed) return;
    const directory = dirname(real);
    this.#directory.follow(new Map(directory === own ? [] : [[directory, new Set([basename(real)])]]));
  }

  /** Undefined: there is nothing that can be read. */
  async #read(): Promise<string | undefined> {
    try {
      return await readFile(this.#path, "utf8");
    } catch (error) {
      const reason = reasonOf(error);
      if (this.#seen !== undefined && !this.#closed) {
        this.#options.onNote(`configuration file unreadable (${reason}); keeping the configuration in use`);
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

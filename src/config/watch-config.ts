/** Watches a configuration file, including a ConfigMap's links, editors' renames, and deletion and re-creation. */
import { unwatchFile, watchFile } from "node:fs";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { reasonOf } from "../base/unknown.js";
import type { ConfigDocument } from "./document.js";
import type { LoadedConfig } from "./load.js";
import { ConfigError } from "./config-error.js";

/** Interval between checks of the file's state, through links, ms. */
const CHECK_MS = 1000;
/** Wait after a change before the file is read, ms, because an editor writes a file in pieces. */
const SETTLE_MS = 100;

interface ConfigWatchOptions {
  readonly path: string;
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
  return () => watch.close();
}

class ConfigWatch {
  readonly #path: string;
  readonly #schedule = (): void => {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#check(), SETTLE_MS);
  };
  /** The content last read; undefined if there was no file. */
  #seen: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(private readonly options: ConfigWatchOptions) {
    this.#path = resolve(options.path);
    this.#seen = options.text;
    watchFile(this.#path, { interval: CHECK_MS, persistent: false }, this.#schedule);
    this.#schedule();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    unwatchFile(this.#path, this.#schedule);
  }

  async #check(): Promise<void> {
    const text = await this.#read();
    if (!this.#closed) this.#judge(text);
  }

  /** Returns undefined if there is nothing readable. */
  async #read(): Promise<string | undefined> {
    try {
      return await readFile(this.#path, "utf8");
    } catch (error) {
      const reason = reasonOf(error);
      if (this.#seen !== undefined && !this.#closed) {
        this.options.onNote(`configuration file unreadable (${reason}); keeping the current configuration`);
      }
      return undefined;
    }
  }

  #judge(text: string | undefined): void {
    const { text: used, document, parse, onChange, onInvalid, onNote } = this.options;
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

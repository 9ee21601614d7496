/** Writes long output as fast as the reader reads, ends silently if the reader exits, and shows progress to a person. */
import { counted } from "../../../base/counted.js";
import { fstatSync } from "node:fs";
import { writeOut } from "../../stdio.js";

/** Not a failure: `list | head`. */
export class ReaderGone extends Error {
  override readonly name = "ReaderGone";
}

const CHUNK = 16_384;

export class Output {
  #buffer = "";

  constructor(private readonly write = writeOut) {}

  /** Rejects with ReaderGone if the reader is gone. */
  async line(text: string): Promise<void> {
    this.#buffer += `${text}\n`;
    if (this.#buffer.length >= CHUNK) await this.flush();
  }

  /** Resolves when the reader, or the pipe to it, has received everything. */
  async flush(): Promise<void> {
    const text = this.#buffer;
    this.#buffer = "";
    if (text !== "" && !(await this.write(text))) throw new ReaderGone("the reader is gone");
  }
}

/** Whether a person watches: stderr is a terminal, and stdout is not a pipe. */
export function isWatched(): boolean {
  if (!process.stderr.isTTY) return false;
  if (process.stdout.isTTY) return true;
  try {
    return fstatSync(1).isFile();
  } catch {
    return false;
  }
}

const SHOW_MS = 200;

/** A line on stderr that shows the progress of a long dump, and disappears by itself. */
export class Progress {
  readonly #started: number;
  #shownAt: number;
  #shown = false;

  /** @param write undefined if no one watches. @param total number of entries in the table, 0 if unknown. */
  constructor(
    private readonly write: ((text: string) => void) | undefined,
    private readonly total = 0,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.#started = this.#shownAt = now();
  }

  /** @param seen number of entries so far. */
  update(seen: number): void {
    const now = this.now();
    if (this.write === undefined || now - this.#shownAt < SHOW_MS) return;
    this.#shownAt = now;
    this.#shown = true;
    const share = this.total > 0 ? ` of about ${this.total}` : "";
    const seconds = ((now - this.#started) / 1000).toFixed(1);
    this.write(
      `\r\u001b[K${share === "" ? counted(seen, "entry", "entries") : `${seen}${share} entries`}, ${seconds}s`,
    );
  }

  /** Removes the line, before other output. */
  clear(): void {
    if (!this.#shown) return;
    this.#shown = false;
    this.write?.("\r\u001b[K");
  }
}

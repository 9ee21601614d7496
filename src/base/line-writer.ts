/** Writes lines to a descriptor: a full disk or a stalled reader costs lines, not service. */
import { writeSync } from "node:fs";

/** Upper limit of the lines that wait for the descriptor, bytes. */
const MOST_BYTES = 1 << 20;
/** Waits between two attempts, ms: the first one, and the longest one after attempts that wrote nothing. */
const RETRY_MS = { first: 1, longest: 128 };
/**
 * How long writes may wait in all, ms, and how many accepted bytes give them 1 ms of it back. A reader of 16 MB/s loses nothing
 * of many lines at once, even if it has to wait for a CPU. One that stalls costs this time once.
 */
const PATIENCE = { mostMs: 100, bytesPerMs: 1 << 14 };
/** How long the end of the process waits for a descriptor that accepts nothing, ms. */
const LAST_MS = 500;

export class LineWriter {
  readonly #fd: number;
  readonly #onDropped: (lines: number) => void;
  readonly #writeSync: (fd: number, bytes: Buffer) => number;
  /** Lines that wait, oldest first; the first one may be a rest. */
  readonly #waiting: Buffer[] = [];
  #bytes = 0;
  #dropped = 0;
  #retry: NodeJS.Timeout | undefined;
  #retryMs = RETRY_MS.first;
  #patienceMs = PATIENCE.mostMs;

  /**
   * @param fd must not block, unless it is a file.
   * @param write as `fs.writeSync`.
   * @param onDropped called with the number of dropped lines when the descriptor accepts lines again. May write.
   */
  constructor(
    fd: number,
    onDropped: (lines: number) => void,
    write: (fd: number, bytes: Buffer) => number = writeSync,
  ) {
    this.#fd = fd;
    this.#writeSync = write;
    this.#onDropped = onDropped;
    process.once("exit", () => this.#end());
  }

  /** Drops the line if too many are waiting. Never throws. */
  write(line: string): void {
    const bytes = Buffer.from(line);
    const full = (): boolean => this.#bytes > 0 && this.#bytes + bytes.length > MOST_BYTES;
    if (full()) {
      const spentMs = this.#attemptFor(this.#patienceMs, full);
      this.#patienceMs -= spentMs;
    }
    if (full()) {
      this.#dropped++;
      return;
    }
    this.#waiting.push(bytes);
    this.#bytes += bytes.length;
    if (this.#retry === undefined) this.#flush();
  }

  #flush(): void {
    this.#retry = undefined;
    const before = this.#bytes;
    if (this.#attempt() !== undefined) {
      this.#retryMs = this.#bytes < before ? RETRY_MS.first : Math.min(2 * this.#retryMs, RETRY_MS.longest);
      // Writing lines is no reason to stay alive.
      this.#retry = setTimeout(() => this.#flush(), this.#retryMs).unref();
      return;
    }
    this.#retryMs = RETRY_MS.first;
    this.#reportDropped();
  }

  #reportDropped(): void {
    const dropped = this.#dropped;
    this.#dropped = 0;
    if (dropped > 0) this.#onDropped(dropped);
  }

  /** Writes as much as the descriptor accepts. Returns the error that ended it, or undefined if nothing waits. */
  #attempt(): unknown {
    try {
      for (let [first] = this.#waiting; first !== undefined; [first] = this.#waiting) {
        const written = this.#writeSync(this.#fd, first);
        this.#bytes -= written;
        this.#patienceMs = Math.min(this.#patienceMs + written / PATIENCE.bytesPerMs, PATIENCE.mostMs);
        if (written < first.length) this.#waiting[0] = first.subarray(written);
        else this.#waiting.shift();
      }
      return undefined;
    } catch (error) {
      return error;
    }
  }

  /** Attempts at least once, and for as long as `needed` if the descriptor may accept more later. Returns the time, ms. */
  #attemptFor(longestMs: number, needed: () => boolean): number {
    const start = performance.now();
    // Not for the whole module, because a startup snapshot cannot contain it.
    const pause = new Int32Array(new SharedArrayBuffer(4));
    for (;;) {
      const spentMs = performance.now() - start;
      const error = this.#attempt();
      const later = error instanceof Error && "code" in error && error.code === "EAGAIN";
      if (!later || spentMs >= longestMs || !needed()) return spentMs;
      Atomics.wait(pause, 0, 0, 1);
    }
  }

  #end(): void {
    this.#attemptFor(LAST_MS, () => true);
    if (this.#bytes > 0) return;
    this.#reportDropped();
    this.#attempt();
  }
}

/** Writes lines to a descriptor without ever waiting for it: a full disk or a stalled reader costs lines, not service. */
import { writeSync } from "node:fs";

/** Upper limit of the lines that wait for the descriptor, bytes. */
const MOST_BYTES = 1 << 20;
/** Waits between two attempts, ms: the first one, and the longest one after attempts that wrote nothing. */
const RETRY_MS = { first: 1, longest: 128 };
/** How long the end of the process waits for a descriptor that accepts nothing, ms. */
const LAST_MS = 500;

export class LineWriter {
  readonly #fd: number;
  readonly #onDropped: (lines: number) => void;
  /** Lines that wait, oldest first; the first one may be a rest. */
  readonly #waiting: Buffer[] = [];
  #bytes = 0;
  #dropped = 0;
  #retry: NodeJS.Timeout | undefined;
  #retryMs = RETRY_MS.first;

  /**
   * @param fd must not block, unless it is a file.
   * @param onDropped called with the number of dropped lines when the descriptor accepts lines again. May write.
   */
  constructor(fd: number, onDropped: (lines: number) => void) {
    this.#fd = fd;
    this.#onDropped = onDropped;
    process.once("exit", () => this.#end());
  }

  /** Drops the line if too many are waiting. Never throws. */
  write(line: string): void {
    const bytes = Buffer.from(line);
    const full = (): boolean => this.#bytes + bytes.length > MOST_BYTES;
    if (full()) this.#attempt();
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
    const dropped = this.#dropped;
    this.#dropped = 0;
    if (dropped > 0) this.#onDropped(dropped);
  }

  /** Writes as much as the descriptor accepts. Returns the error that ended it, or undefined if nothing waits. */
  #attempt(): unknown {
    try {
      for (let [first] = this.#waiting; first !== undefined; [first] = this.#waiting) {
        const written = writeSync(this.#fd, first);
        this.#bytes -= written;
        if (written < first.length) this.#waiting[0] = first.subarray(written);
        else this.#waiting.shift();
      }
      return undefined;
    } catch (error) {
      return error;
    }
  }

  #end(): void {
    const pause = new Int32Array(new SharedArrayBuffer(4));
    for (const end = performance.now() + LAST_MS; performance.now() < end; Atomics.wait(pause, 0, 0, 10)) {
      const error = this.#attempt();
      if (!(error instanceof Error && "code" in error && error.code === "EAGAIN")) return;
    }
  }
}

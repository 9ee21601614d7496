/** The last lines of this program's own log, for debug output. */

/** Limits on the lines kept, and on their total length in characters. */
const MOST_LINES = 500;
const MOST_CHARACTERS = 256 * 1024;

export class LogTail {
  readonly #lines: string[] = [];
  #characters = 0;

  /** @param line including its line feed. */
  keep(line: string): void {
    this.#lines.push(line);
    this.#characters += line.length;
    while (this.#lines.length > MOST_LINES || this.#characters > MOST_CHARACTERS) {
      this.#characters -= this.#lines.shift()?.length ?? 0;
    }
  }

  /** Oldest first. */
  get text(): string {
    return this.#lines.join("");
  }
}

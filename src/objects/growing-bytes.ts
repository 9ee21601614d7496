/**
 * Text that arrives in chunks. The bytes are copied: a small view of a chunk would keep the whole chunk in memory, and a peer
 * that sends a byte at a time would be given a hundred times as much memory as it sends.
 */
export class GrowingBytes {
  #bytes = Buffer.alloc(0);
  #length = 0;

  /** Bytes so far. */
  get length(): number {
    return this.#length;
  }

  append(chunk: Buffer): void {
    const length = this.#length + chunk.length;
    if (length > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.max(2 * this.#bytes.length, length));
      this.#bytes.copy(larger, 0, 0, this.#length);
      this.#bytes = larger;
    }
    chunk.copy(this.#bytes, this.#length);
    this.#length = length;
  }

  /** All bytes and `last` as UTF-8 text; empty from then on. */
  take(last: Buffer): string {
    if (this.#length === 0) return last.toString();
    this.append(last);
    const text = this.#bytes.toString("utf8", 0, this.#length);
    this.#bytes = Buffer.alloc(0);
    this.#length = 0;
    return text;
  }
}

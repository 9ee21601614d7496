/**
 * Bytes that arrive in chunks. They are copied, because a small view would keep its whole chunk in memory. A peer that sends a
 * byte at a time would then use a hundred times as much memory as it sends.
 */
export class GrowingBytes {
  #bytes = Buffer.alloc(0);
  #length = 0;

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

  /** All bytes and `last`. Empties the buffer. */
  take(last: Buffer): Buffer {
    if (this.#length === 0) return last;
    this.append(last);
    const bytes = this.#bytes.subarray(0, this.#length);
    this.#bytes = Buffer.alloc(0);
    this.#length = 0;
    return bytes;
  }
}

/** The comments of one set's elements: the desired ones and the kernel's. The kernel cannot change a comment, so its element is replaced. */
import type { ElementBatch } from "../kernel/kernel.js";
import { commentOf } from "../bytes/names-and-comments.js";
import { DESIRED, type Rows } from "./rows.js";

export class Comments {
  readonly #rows: Rows;
  readonly #desired = new Map<number, string>();
  #kernel = new Map<number, string>();

  constructor(rows: Rows) {
    this.#rows = rows;
  }

  /** Whether an element has a comment, desired or in the kernel. Most sets have none. */
  get any(): boolean {
    return this.#desired.size + this.#kernel.size > 0;
  }

  /** The desired comment. */
  of(row: number): string | undefined {
    return this.any ? this.#desired.get(row) : undefined;
  }

  /** Desires a comment. Returns false if it was desired before. */
  put(row: number, comment: string): boolean {
    if (this.#desired.get(row) === comment) return false;
    this.#desired.set(row, comment);
    return true;
  }

  /** Whether to write the row although the kernel holds it. */
  differs(row: number): boolean {
    if (!this.any) return false;
    const state = this.#rows.of(row);
    return (state & DESIRED) !== 0 && this.#rows.isInKernel(state) && !this.kernelHas(row, this.#desired.get(row));
  }

  kernelHas(row: number, comment: string | undefined): boolean {
    return this.#kernel.get(row) === comment;
  }

  /** The row is no longer desired. */
  markUndesired(row: number): void {
    this.#desired.delete(row);
  }

  /** The row is desired as the kernel holds it. */
  adopt(row: number): void {
    const comment = this.#kernel.get(row);
    if (comment !== undefined) this.#desired.set(row, comment);
  }

  /** The kernel holds the row with the desired comment. */
  settled(row: number): void {
    if (!this.any) return;
    const comment = this.#desired.get(row);
    if (comment !== undefined) this.#kernel.set(row, comment);
    else this.#kernel.delete(row);
  }

  /** The kernel no longer holds the rows. */
  forgetKernel(): void {
    if (this.#kernel.size > 0) this.#kernel = new Map();
  }

  /** A dump has the row with this comment. Returns whether it had another one. */
  found(row: number, comment: string | undefined): boolean {
    if (this.kernelHas(row, comment)) return false;
    if (comment === undefined) this.#kernel.delete(row);
    else this.#kernel.set(row, comment);
    return true;
  }

  /** From now on the row belongs to another element. */
  freed(row: number): void {
    this.#desired.delete(row);
    this.#kernel.delete(row);
  }
}

/** Returns the comments of a dump, by record. */
export function commentsIn({ extras = [] }: ElementBatch): ReadonlyMap<number, string> {
  const comments = new Map<number, string>();
  for (const { record, userdata } of extras) {
    const comment = commentOf(userdata);
    if (comment !== undefined) comments.set(record, comment);
  }
  return comments;
}

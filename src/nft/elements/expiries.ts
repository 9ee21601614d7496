/**
 * Tracks when elements end in one set with timeouts that the Table fills. The kernel ends an element without an event, so each row has two ends of
 * its own: the desired one and the kernel's. The kernel's is the later one: an element is sent with the time that it has left, and that time starts
 * to run when the transaction takes effect.
 */
import type { Rows } from "./rows.js";
import { DESIRED } from "./rows.js";

interface Ends {
  /** The timeout that the element is written with, ms. 0: it does not end. */
  timeoutMs: number;
  /** When the desired element ends, on the clock. */
  until: number;
  /** The latest time at which the kernel may hold the element. */
  kernelUntil: number;
  /** The time of the kernel's element differs: it has to be written again. */
  renewed: boolean;
  /** The timeout was asked for, but has not been written yet. */
  asked: boolean;
  /** The element comes from an earlier run: a dump had it, and it has not been desired since. */
  inherited: boolean;
  /** The element has expired, but the kernel may still hold it. */
  over: boolean;
  /** Time left when the element was last packed, ms. */
  sentLeft: number;
}

/** Elements count as expired this much earlier: the kernel counts in jiffies, 10 ms at HZ=100. */
const SLACK_MS = 20;
/** Ends that differ by less are the same: an element found in the kernel keeps its own. */
const SAME_MS = 1000;

interface ExpiryHandlers {
  /** The row is no longer desired. */
  over(row: number): void;
  /** The kernel no longer holds the row. */
  gone(row: number): void;
}

export class Expiries {
  readonly #rows: Rows;
  readonly #now: () => number;
  readonly #handlers: ExpiryHandlers;
  readonly #ends = new Map<number, Ends>();
  /** A heap, the earliest end first. Ends that a row no longer has are skipped. */
  #due: (readonly [at: number, row: number])[] = [];

  constructor(
    rows: Rows,
    readonly defaultMs: () => number,
    now: () => number,
    handlers: ExpiryHandlers,
  ) {
    this.#rows = rows;
    this.#now = now;
    this.#handlers = handlers;
  }

  /** Ends all elements that have expired. */
  sweep(): void {
    const now = this.#now();
    for (let first = this.#due[0]; first !== undefined && first[0] <= now; first = this.#due[0]) {
      popDue(this.#due);
      const [at, row] = first;
      const ends = this.#ends.get(row);
      if (ends === undefined) continue;
      if (at === ends.until - SLACK_MS && this.#isDesired(row)) {
        ends.over = true;
        ends.renewed = false;
        this.#handlers.over(row);
      }
      if (at === ends.kernelUntil) this.#handlers.gone(row);
    }
  }

  /**
   * The row has just become desired.
   * @param timeoutMs the timeout asked for. Default: that of the set.
   * @param wasSame it was already desired with the same data.
   * @returns whether its end changed.
   */
  put(row: number, timeoutMs: number | undefined, wasSame: boolean): boolean {
    if (wasSame && timeoutMs === undefined) return false;
    const now = this.#now();
    const ends = this.#of(row);
    const inKernel = this.#rows.isInKernel(this.#rows.of(row));
    ends.timeoutMs = timeoutMs ?? this.defaultMs();
    ends.until = ends.timeoutMs === 0 ? Infinity : now + ends.timeoutMs;
    ends.asked = timeoutMs !== undefined;
    // An element from an earlier run keeps its time, unless another one is asked for.
    const end = ends.kernelUntil - SLACK_MS;
    const keepsTime = inKernel && ends.inherited && !ends.asked && end !== Infinity;
    if (keepsTime) ends.until = end;
    ends.renewed = inKernel && ends.until !== end;
    ends.inherited = false;
    ends.over = false;
    this.#push(ends.until - SLACK_MS, row);
    return true;
  }

  /** The row has just become desired as a dump has found it. */
  adopt(row: number): void {
    const ends = this.#of(row);
    ends.until = ends.kernelUntil - SLACK_MS;
    ends.renewed = ends.asked = ends.inherited = ends.over = false;
    this.#push(ends.until - SLACK_MS, row);
  }

  /** Whether to write the row although the kernel holds it. */
  renewed(row: number): boolean {
    return this.#ends.get(row)?.renewed === true;
  }

  /** Returns the timeout to write the row with, and the time left, ms. 0 if it has none. */
  packed(row: number): readonly [timeoutMs: number, leftMs: number] {
    const ends = this.#of(row);
    const left = this.#left(ends);
    ends.sentLeft = left === 0 ? Infinity : left;
    return [ends.timeoutMs, left];
  }

  /** The same for people, without noting it as packed. */
  times(row: number): readonly [timeoutMs: number, leftMs: number] {
    const ends = this.#of(row);
    return [ends.timeoutMs, this.#left(ends)];
  }

  #left({ timeoutMs, until }: Ends): number {
    if (timeoutMs === 0) return 0;
    return Math.min(timeoutMs, Math.max(SLACK_MS, Math.ceil(until - this.#now())));
  }

  /** The kernel has committed the row as it was last packed. */
  settled(row: number): void {
    const ends = this.#ends.get(row);
    if (ends === undefined) return;
    ends.renewed = ends.asked = false;
    this.#heldUntil(row, ends, this.#now() + ends.sentLeft + SLACK_MS);
  }

  /**
   * A dump has the row.
   * @param leftMs 0: it does not end.
   * @param timeoutMs the row's own timeout. 0: that of the kernel's set.
   */
  found(row: number, leftMs: number, timeoutMs: number): void {
    const isNew = !this.#ends.has(row);
    const ends = this.#of(row);
    const end = leftMs === 0 ? Infinity : this.#now() + leftMs;
    this.#heldUntil(row, ends, end + SLACK_MS);
    if (!this.#isDesired(row)) {
      ends.inherited = isNew;
      // The kernel's set may have had another timeout.
      ends.timeoutMs = leftMs === 0 ? 0 : timeoutMs || Math.max(this.defaultMs(), leftMs);
      return;
    }
    const same = ends.until === end || Math.abs(ends.until - end) <= SAME_MS;
    ends.renewed = !same && (ends.asked || ends.renewed || end === Infinity);
    if (ends.renewed) return;
    ends.asked = false;
    ends.until = end;
    this.#push(end - SLACK_MS, row);
  }

  /** Whether the row has expired although the kernel may still hold it. */
  isOver(row: number): boolean {
    return this.#ends.get(row)?.over === true;
  }

  /** Rows that have expired, and that the kernel may still hold. */
  *overRows(): Generator<number> {
    for (const [row, { over }] of this.#ends) if (over) yield row;
  }

  /** From now on the row belongs to another element. */
  freed(row: number): void {
    this.#ends.delete(row);
  }

  #of(row: number): Ends {
    const known = this.#ends.get(row);
    if (known !== undefined) return known;
    const ends: Ends = {
      timeoutMs: this.defaultMs(),
      until: Infinity,
      kernelUntil: Infinity,
      renewed: false,
      asked: false,
      inherited: false,
      over: false,
      sentLeft: Infinity,
    };
    this.#ends.set(row, ends);
    return ends;
  }

  #isDesired(row: number): boolean {
    return (this.#rows.of(row) & DESIRED) !== 0;
  }

  #heldUntil(row: number, ends: Ends, kernelUntil: number): void {
    ends.kernelUntil = kernelUntil;
    this.#push(kernelUntil, row);
  }

  #push(at: number, row: number): void {
    if (at === Infinity) return;
    // Each row has two ends. The other entries are former ends of renewed elements.
    if (this.#due.length > 4 * this.#ends.size + 64) this.#rebuild();
    pushDue(this.#due, [at, row]);
  }

  #rebuild(): void {
    const due = this.#due;
    this.#due = [];
    for (const entry of due) {
      const ends = this.#ends.get(entry[1]);
      if (ends !== undefined && (entry[0] === ends.until - SLACK_MS || entry[0] === ends.kernelUntil))
        pushDue(this.#due, entry);
    }
  }
}

type Due = readonly [at: number, row: number];

function pushDue(heap: Due[], entry: Due): void {
  let at = heap.push(entry) - 1;
  while (at > 0) {
    const parent = (at - 1) >> 1;
    if (heap[parent][0] <= entry[0]) break;
    heap[at] = heap[parent];
    at = parent;
  }
  heap[at] = entry;
}

function popDue(heap: Due[]): void {
  const last = heap.pop();
  if (last === undefined || heap.length === 0) return;
  let at = 0;
  for (;;) {
    let child = 2 * at + 1;
    if (child >= heap.length) break;
    if (child + 1 < heap.length && heap[child + 1][0] < heap[child][0]) child++;
    if (heap[child][0] >= last[0]) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = last;
}

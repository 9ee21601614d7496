import { batchLayout } from "../../netlink/element-batch.js";
import { ElementFlag } from "../../netlink/constants.js";
import type { ElementBatch } from "../../netlink/kernel.js";
import { bytesToNumber, mergeRanges, parseRange, type Range, rangeText } from "../../base/ip-ranges.js";
import { durationText } from "../rules/actions.js";
import { rangeKey, rangeOfKey, rangesOfBatch } from "../rules/intervals.js";
import { readU32 } from "./bytes.js";
import { TrackedElements } from "./tracked-elements.js";
import type { Column, RecordVisitor } from "./batch-writer.js";

/**
 * The desired networks of an interval set. A row is a range, and `size` counts ranges. Without timeouts, networks are replaced together and merged. With
 * timeouts, each range is put and deleted, and ranges do not overlap.
 */
export class TrackedIntervals extends TrackedElements {
  readonly #width = this.keyLen / 2;
  /** The desired ranges in order. Wrong if their number is. Undefined after other changes. */
  #inOrder: Range[] | undefined;

  override replaceNets(nets: readonly string[]): void {
    const networks = nets.map((net) => {
      const network = parseRange(net);
      if (network.version !== (this.#width === 4 ? 4 : 6)) {
        throw new RangeError(`set ${this.spec.set}: ${net} belongs to the other IP family`);
      }
      return network;
    });
    this.clear();
    for (const range of mergeRanges(networks)) super.put(rangeKey(range, this.#width));
  }

  override nets(): string[] {
    const ranges: Range[] = [];
    this.forEach((key) => ranges.push(rangeOfKey(key)));
    const timed = this.spec.timeoutMs !== undefined;
    return (timed ? ranges : mergeRanges(ranges)).map((range) => rangeText(range, this.#width) + this.#times(range));
  }

  #times(range: Range): string {
    const [timeoutMs, leftMs] = this.times(rangeKey(range, this.#width));
    return timeoutMs === 0 ? "" : ` timeout ${durationText(timeoutMs)} expires ${durationText(leftMs)}`;
  }

  /** Throws RangeError if the range overlaps another desired one. */
  override put(key: Uint8Array, _data?: Uint8Array, timeoutMs?: number, comment?: string): boolean {
    this.#checkTimed();
    if (!this.has(key)) this.#insert(rangeOfKey(key));
    return super.put(key, undefined, timeoutMs, comment);
  }

  override delete(key: Uint8Array): boolean {
    this.#checkTimed();
    this.#inOrder = undefined;
    return super.delete(key);
  }

  override clear(): void {
    this.#inOrder = undefined;
    super.clear();
  }

  override load(batch?: ElementBatch): ReturnType<TrackedElements["load"]> {
    this.#inOrder = undefined;
    return super.load(batch);
  }

  #checkTimed(): void {
    if (this.spec.timeoutMs !== undefined) return;
    throw new TypeError(`set ${this.spec.set} is an interval set without timeouts: call replaceNets() instead`);
  }

  #insert(range: Range): void {
    let ranges = this.#inOrder;
    // Ranges that have expired are missing.
    if (ranges?.length !== this.size) {
      const all: Range[] = [];
      this.forEach((key) => all.push(rangeOfKey(key)));
      ranges = all.toSorted((a, b) => (a.from < b.from ? -1 : 1));
      this.#inOrder = ranges;
    }
    let [low, high] = [0, ranges.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (ranges[middle].from < range.from) low = middle + 1;
      else high = middle;
    }
    for (const other of ranges.slice(Math.max(0, low - 1), low + 1)) {
      if (other.to < range.from || range.to < other.from) continue;
      const [text, its] = [range, other].map((one) => rangeText(one, this.#width));
      throw new RangeError(`set ${this.spec.set}: ${text} overlaps ${its}`);
    }
    ranges.splice(low, 0, range);
  }

  protected override columnWord(batch: ElementBatch, column: Column): number {
    if (column === "counter" || batch.timeouts !== true) return -1;
    return this.keyLen / 4 + (column === "expiration" ? 2 : 0);
  }

  protected override eachRecord(batch: ElementBatch, visit: RecordVisitor): Promise<boolean> {
    if (batch.timeouts === true) return Promise.resolve(this.#eachTimed(batch, visit));
    const { ranges, complete } = rangesOfBatch(batch);
    for (const range of ranges) visit(new Int32Array(rangeKey(range, this.#width).buffer), 0, NO_DATA, 0, NO_RECORD);
    return Promise.resolve(complete);
  }

  /** Visits ranges with their times. The kernel omits the start of a range that has expired, but not its end. Returns false for other elements. */
  #eachTimed(batch: ElementBatch, visit: RecordVisitor): boolean {
    const { stride, flags: flagsAt, timeout } = batchLayout(batch);
    const points = Array.from({ length: batch.count }, (_, record) => {
      const base = record * stride;
      const flags = flagsAt < 0 ? 0 : readU32(batch.bytes, base + flagsAt);
      return { at: bytesToNumber(batch.bytes.subarray(base, base + batch.keyLen)), flags, record };
    }).toSorted((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : b.flags - a.flags));
    const close = ({ at, record }: { readonly at: bigint; readonly record: number }, to: bigint): void => {
      const words = new Int32Array(this.keyLen / 4 + TIME_WORDS);
      const bytes = new Uint8Array(words.buffer);
      bytes.set(rangeKey({ from: at, to }, this.#width));
      const times = record * stride + timeout;
      bytes.set(batch.bytes.subarray(times, times + TIME_WORDS * 4), this.keyLen);
      visit(words, 0, NO_DATA, 0, record);
    };
    let complete = true;
    let open: (typeof points)[number] | undefined;
    for (const point of points) {
      if ((point.flags & ElementFlag.catchall) !== 0) complete = false;
      else if ((point.flags & ElementFlag.intervalEnd) === 0) {
        if (open !== undefined) complete = false;
        open = point;
      } else if (open !== undefined) {
        close(open, point.at - 1n);
        open = undefined;
      }
    }
    if (open !== undefined) close(open, (1n << BigInt(this.#width * 8)) - 1n);
    return complete;
  }
}

const NO_DATA = new Int32Array(0);
/** A range has one or two records. */
const NO_RECORD = -1;
/** The timeout and the time left, 64 bits each. */
const TIME_WORDS = 4;

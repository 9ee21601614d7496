import type { ElementBatch } from "../kernel/kernel.js";
import { type Pieces, sortedInPieces } from "../../base/time-slice.js";
import { mergeRanges, parseRange, rangeText } from "../bytes/ip-ranges.js";
import { rangeKey, rangeOfKey, rangeRows } from "../language/intervals.js";
import { printKey } from "./print-key.js";
import { bytesOf } from "../language/fields/field-types.js";
import { padded } from "../language/schema.js";
import type { CounterDump } from "./counted-rows.js";
import { DisjointRanges } from "../bytes/disjoint-ranges.js";
import { CATCH_ALL } from "./rows.js";
import { type ElementDrift, TrackedElements } from "./tracked-elements.js";

/**
 * The desired elements of an interval set or map. A key is a range: the first value, then the last one, each as in other sets, but all fields in network
 * byte order. Ranges do not overlap. A range of a concatenation is a range of each field.
 */
export class TrackedIntervals extends TrackedElements {
  readonly #width = this.keyLen / 2;
  /** The desired ranges. Wrong if their number is. Undefined after other changes. */
  #ranges: DisjointRanges | undefined;

  protected override netKeys(nets: readonly string[]): Uint8Array[] {
    return nets.map((net) => {
      const network = parseRange(net);
      if (network?.version !== (this.#width === 4 ? 4 : 6))
        throw new RangeError(`set ${this.spec.set}: ${net} is not a network of its IP family`);
      return rangeKey(network, this.#width);
    });
  }

  protected override *replacing(given: Iterable<Uint8Array>, timeoutMs?: number, comment?: string): Pieces<void> {
    const keys = yield* sortedInPieces(yield* this.copied(given), (a, b) => Buffer.compare(a, b));
    const { key: fields, counters } = this.spec;
    // Each range that is counted stays an element of its own.
    const joins = fields.length === 1 && counters === undefined;
    const [added, none] = [this.#none(), this.#none()];
    let previous: Uint8Array = CATCH_ALL;
    for (const key of keys) {
      if (Buffer.compare(previous, key) !== 0) {
        this.#check(key, joins ? none : added);
        if (joins) added.join(key);
        else added.add(key);
      }
      previous = key;
      yield;
    }
    this.#ranges = undefined;
    yield* super.replacing([...added, ...(keys[0]?.length === 0 ? [CATCH_ALL] : [])], timeoutMs, comment);
    this.#ranges = added;
  }

  override nets(): string[] {
    return mergeRanges([...this.#desired()].map(rangeOfKey)).map((range) => rangeText(range, this.#width));
  }

  /** Throws RangeError if the range overlaps another desired one. */
  override put(key: Uint8Array, data?: Uint8Array, timeoutMs?: number, comment?: string): boolean {
    this.gate.checkChangeable();
    if (key.length === 0 || this.has(key)) return super.put(key, data, timeoutMs, comment);
    const ranges = this.#desired();
    this.#check(key, ranges);
    const changed = super.put(key, data, timeoutMs, comment);
    ranges.add(key);
    return changed;
  }

  protected override fits(key: Uint8Array): boolean {
    return key.length === 0 || this.#desired().overlapping(key) === undefined;
  }

  override delete(key: Uint8Array): boolean {
    this.gate.checkChangeable();
    this.#ranges?.delete(key);
    return super.delete(key);
  }

  override clear(): void {
    this.#ranges = undefined;
    super.clear();
  }

  override async load(batch?: ElementBatch): ReturnType<TrackedElements["load"]> {
    const found = batch && rangeRows(batch);
    const loaded = await super.load(found?.rows);
    this.#ranges = undefined;
    return { ...loaded, complete: found?.complete !== false };
  }

  override async compare(batch: ElementBatch): Promise<ElementDrift> {
    const { rows, complete } = rangeRows(batch);
    const drift = await super.compare(rows);
    return complete ? drift : { ...drift, added: drift.added + 1 };
  }

  override readCounters(dump: CounterDump): Promise<void> {
    return super.readCounters(async () => {
      const batch = await dump();
      return batch && rangeRows(batch).rows;
    });
  }

  #desired(): DisjointRanges {
    // Ranges that have expired are missing.
    if (this.#ranges?.size === this.size - (this.has(CATCH_ALL) ? 1 : 0)) return this.#ranges;
    const keys: Uint8Array[] = [];
    this.forEach((key) => {
      if (key.length > 0) keys.push(key.slice());
    });
    const ranges = (this.#ranges = this.#none());
    for (const key of keys.toSorted((a, b) => Buffer.compare(a, b))) ranges.add(key);
    return ranges;
  }

  #none(): DisjointRanges {
    const { key } = this.spec;
    let to = 0;
    const fields = key.map((field) => {
      const from = to;
      to += key.length === 1 ? this.#width : padded(bytesOf(field));
      return [from, to] as const;
    });
    return new DisjointRanges(fields);
  }

  #check(key: Uint8Array, ranges: DisjointRanges): void {
    const text = (one: Uint8Array): string => `set ${this.spec.set}: ${printKey(this.spec, one)}`;
    if (ranges.isReversed(key)) throw new RangeError(`${text(key)} ends before it begins`);
    const other = ranges.overlapping(key);
    if (other !== undefined) throw new RangeError(`${text(key)} overlaps ${printKey(this.spec, other)}`);
  }
}

import type { ElementBatch } from "../../netlink/kernel.js";
import { mergeRanges, parseRange, type Range, rangeText } from "../../base/ip-ranges.js";
import { rangeKey, rangeOfKey, rangesOfBatch } from "../rules/intervals.js";
import { TrackedElements } from "./tracked-elements.js";
import type { RecordVisitor } from "./batch-writer.js";

/** The desired networks of an interval set. A row is a range, and `size` counts ranges. */
export class TrackedIntervals extends TrackedElements {
  readonly #width = this.keyLen / 2;

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
    return mergeRanges(ranges).map((range) => rangeText(range, this.#width));
  }

  override put(): never {
    throw new TypeError(`set ${this.spec.set} is an interval set: call replaceNets() instead`);
  }

  override delete(): never {
    throw new TypeError(`set ${this.spec.set} is an interval set: call replaceNets() instead`);
  }

  protected override eachRecord(batch: ElementBatch, visit: RecordVisitor): Promise<boolean> {
    const { ranges, complete } = rangesOfBatch(batch);
    for (const range of ranges) visit(new Int32Array(rangeKey(range, this.#width).buffer), 0, NO_DATA, 0, NO_RECORD);
    return Promise.resolve(complete);
  }
}

const NO_DATA = new Int32Array(0);
/** A range has one or two records. */
const NO_RECORD = -1;

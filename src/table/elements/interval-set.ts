import type { ElementBatch } from "../../kernel/types.js";
import { mergeRanges, parseNetwork, type Range, rangeText } from "../../base/ip-ranges.js";
import { rangeKey, rangeOfKey, rangesOfBatch } from "../rules/intervals.js";
import { TrackedElements } from "./element-set.js";
import type { RecordVisitor } from "./batches.js";

/** The desired networks of an interval set: a row is a range. `size` counts ranges. */
export class TrackedIntervals extends TrackedElements {
  readonly #width = this.keyLen / 2;

  override replaceNets(nets: readonly string[]): void {
    const networks = nets.map((net) => {
      const network = parseNetwork(net);
      if (network.version !== (this.#width === 4 ? 4 : 6)) {
        throw new RangeError(`set ${this.spec.set}: ${net} is of the other family`);
      }
      return network;
    });
    const keys = mergeRanges(networks).map((range) => rangeKey(range, this.#width));
    const desired = new Set(keys.map(hex));
    const gone: Uint8Array[] = [];
    this.forEach((key) => {
      if (!desired.has(hex(key))) gone.push(key.slice());
    });
    for (const key of gone) super.delete(key);
    for (const key of keys) super.put(key);
  }

  override keepLeftovers(): void {
    const keys: Uint8Array[] = [];
    this.forEachLeftover((key) => keys.push(key.slice()));
    for (const key of keys) super.put(key);
  }

  override nets(): string[] {
    return this.ranges().map((range) => rangeText(range, this.#width));
  }

  ranges(): Range[] {
    const ranges: Range[] = [];
    this.forEach((key) => ranges.push(rangeOfKey(key)));
    return mergeRanges(ranges);
  }

  override put(): never {
    throw new TypeError(`set ${this.spec.set} is an interval set: use replaceNets`);
  }

  override delete(): never {
    throw new TypeError(`set ${this.spec.set} is an interval set: use replaceNets`);
  }

  protected override eachRecord(batch: ElementBatch, visit: RecordVisitor): Promise<boolean> {
    const { ranges, complete } = rangesOfBatch(batch);
    for (const range of ranges) visit(new Int32Array(rangeKey(range, this.#width).buffer), 0, NO_DATA, 0);
    return Promise.resolve(complete);
  }
}

const NO_DATA = new Int32Array(0);

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}

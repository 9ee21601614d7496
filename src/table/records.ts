import { ElementFlag } from "../kernel/constants.js";
import { batchLayout } from "../kernel/element-batch.js";
import type { ElementBatch, Verdict } from "../kernel/types.js";
import { readU32, writeU32 } from "./bytes.js";
import { inSlices } from "./yielding.js";

/** Shown one element: its key at `key[at]`, its data (for verdict maps the registry's number) at `data[dataAt]`. */
export type RecordVisitor = (key: Uint8Array, at: number, data: Uint8Array, dataAt: number) => void;

/** Shows every element of a dump but catch-alls; false when there is one. Lets the event loop run now and then. */
export async function eachRecord(
  batch: ElementBatch,
  numberOf: (verdict: Verdict) => number,
  visit: RecordVisitor,
): Promise<boolean> {
  const layout = batchLayout(batch);
  const numbers = batch.verdicts?.map(numberOf);
  const verdict = new Uint8Array(4);
  let complete = true;
  await inSlices(batch.count, (from, to) => {
    for (let i = from; i < to; i++) {
      const at = i * layout.stride;
      if (layout.flags >= 0 && (readU32(batch.bytes, at + layout.flags) & ElementFlag.catchall) !== 0) {
        complete = false;
        continue;
      }
      if (numbers === undefined) visit(batch.bytes, at, batch.bytes, at + layout.data);
      else {
        writeU32(verdict, 0, numbers[readU32(batch.bytes, at + layout.data)]);
        visit(batch.bytes, at, verdict, 0);
      }
    }
  });
  return complete;
}

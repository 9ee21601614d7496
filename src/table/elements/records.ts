import { ElementFlag } from "../../kernel/constants.js";
import { batchLayout } from "../../kernel/element-batch.js";
import type { ElementBatch, Verdict } from "../../kernel/types.js";
import { wordsFor } from "./bytes.js";
import { inSlices } from "./yielding.js";

/** Shown one element: its key at `words[at]`, its data (for verdict maps the registry's number) at `data[dataAt]`. */
export type RecordVisitor = (words: Int32Array, at: number, data: Int32Array, dataAt: number) => void;

/** Shows every element of a dump but catch-alls; false when there is one. Lets the event loop run now and then. */
export async function eachRecord(
  batch: ElementBatch,
  numberOf: (verdict: Verdict) => number,
  visit: RecordVisitor,
): Promise<boolean> {
  const { stride, dataAt, flagsAt, words } = wordsOf(batch);
  const numbers = batch.verdicts?.map(numberOf);
  const verdict = new Int32Array(1);
  let complete = true;
  await inSlices(batch.count, (from, to) => {
    for (let i = from; i < to; i++) {
      const at = i * stride;
      if (flagsAt >= 0 && (words[at + flagsAt] & ElementFlag.catchall) !== 0) complete = false;
      else if (numbers === undefined) visit(words, at, words, at + dataAt);
      else {
        verdict[0] = numbers[words[at + dataAt]];
        visit(words, at, verdict, 0);
      }
    }
  });
  return complete;
}

/** The records as words; keys or data of 1 or 2 bytes are padded first. */
function wordsOf(batch: ElementBatch): { words: Int32Array; stride: number; dataAt: number; flagsAt: number } {
  const { keyLen, dataLen, count } = batch;
  const layout = batchLayout(batch);
  if ((keyLen | dataLen) % 4 === 0) {
    const aligned = batch.bytes.byteOffset % 4 === 0 ? batch.bytes : new Uint8Array(batch.bytes);
    const words = new Int32Array(aligned.buffer, aligned.byteOffset, aligned.length >>> 2);
    return { words, stride: layout.stride / 4, dataAt: Math.max(0, layout.data >> 2), flagsAt: layout.flags >> 2 };
  }
  const flagsAt = layout.flags < 0 ? -1 : wordsFor(keyLen) + wordsFor(dataLen);
  const stride = flagsAt < 0 ? wordsFor(keyLen) + wordsFor(dataLen) : flagsAt + 1;
  const words = new Int32Array(count * stride);
  const bytes = new Uint8Array(words.buffer);
  for (let i = 0; i < count; i++) {
    const from = i * layout.stride;
    const to = i * stride * 4;
    bytes.set(batch.bytes.subarray(from, from + keyLen), to);
    bytes.set(batch.bytes.subarray(from + layout.data, from + layout.data + dataLen), to + wordsFor(keyLen) * 4);
    if (flagsAt >= 0) bytes.set(batch.bytes.subarray(from + layout.flags, from + layout.flags + 4), to + flagsAt * 4);
  }
  return { words, stride, dataAt: wordsFor(keyLen), flagsAt };
}

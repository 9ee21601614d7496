import { ElementFlag } from "../../kernel/constants.js";
import { batchLayout } from "../../kernel/element-batch.js";
import type { Op } from "../../kernel/kernel.js";
import { elementId, type NamespaceState } from "./state.js";

/**
 * Returns the operations as sent: elements with `carry` start with the counts of the elements that have the same keys.
 */
export function carryCounts(state: NamespaceState, ops: readonly Op[]): readonly Op[] {
  return ops.map((op) => {
    if (op.kind !== "elements" || op.op === "flush" || op.carry === undefined) return op;
    const set = state.find(op)?.sets.get(op.set);
    const bytes = Buffer.from(op.elements.bytes);
    const { stride, counter, flags, keyEnd: keyEndAt } = batchLayout(op.elements);
    for (const record of op.carry) {
      const at = record * stride;
      const [key, keyEnd] = [0, Math.max(0, keyEndAt)].map((column) =>
        bytes.toString("latin1", at + column, at + column + op.elements.keyLen),
      );
      const catchall = flags >= 0 && (bytes.readUInt32LE(at + flags) & ElementFlag.catchall) !== 0;
      const former = set?.elements.get(elementId({ key, keyEnd, end: false, catchall }))?.count;
      if (former === undefined) continue;
      bytes.writeBigUInt64LE(former.packets, at + counter);
      bytes.writeBigUInt64LE(former.bytes, at + counter + 8);
    }
    return { ...op, elements: { ...op.elements, bytes } };
  });
}

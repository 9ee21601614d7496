import { batchLayout } from "../../kernel/element-batch.js";
import type { Op } from "../../kernel/kernel.js";
import { elementId, type NamespaceState } from "../state/state.js";
import { givenElements } from "./given-elements.js";

/**
 * Returns the operations as sent: elements with `carry` start with the counts of the elements that have the same keys.
 */
export function carryCounts(state: NamespaceState, ops: readonly Op[]): readonly Op[] {
  return ops.map((op) => {
    if (op.kind !== "elements" || op.op === "flush" || op.carry === undefined) return op;
    const set = state.find(op)?.sets.get(op.set);
    const bytes = Buffer.from(op.elements.bytes);
    const { stride, counter } = batchLayout(op.elements);
    const given = [...givenElements(op.elements)];
    for (const record of op.carry) {
      const former = set?.elements.get(elementId(given[record]))?.count;
      if (former === undefined) continue;
      bytes.writeBigUInt64LE(former.packets, record * stride + counter);
      bytes.writeBigUInt64LE(former.bytes, record * stride + counter + 8);
    }
    return { ...op, elements: { ...op.elements, bytes } };
  });
}

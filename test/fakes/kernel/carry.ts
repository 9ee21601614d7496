import { batchLayout } from "../../../src/kernel/element-batch.js";
import type { CarriedCounts, Op } from "../../../src/kernel/kernel.js";
import type { NamespaceState } from "./state.ts";

/** The operations as they are sent: elements with `carry` begin with what those of their keys have counted. Nothing counts meanwhile. */
export function carryCounts(
  state: NamespaceState,
  ops: readonly Op[],
): { readonly ops: readonly Op[]; readonly carried?: readonly CarriedCounts[] } {
  const carried: CarriedCounts[] = [];
  const sent = ops.map((op, index) => {
    if (op.kind !== "elements" || op.op === "flush" || op.carry === undefined) return op;
    const set = state.find(op)?.sets.get(op.set);
    const bytes = Buffer.from(op.elements.bytes);
    const { stride, counter } = batchLayout(op.elements);
    const counts = [...op.carry].flatMap((record) => {
      const at = record * stride;
      const key = bytes.toString("latin1", at, at + op.elements.keyLen);
      const former = set?.elements.get(key)?.count;
      if (former !== undefined) {
        bytes.writeBigUInt64LE(former.packets, at + counter);
        bytes.writeBigUInt64LE(former.bytes, at + counter + 8);
      }
      return [Number(bytes.readBigUInt64LE(at + counter)), Number(bytes.readBigUInt64LE(at + counter + 8)), 0];
    });
    carried.push({ op: index, counts: new Float64Array(counts) });
    return { ...op, elements: { ...op.elements, bytes } };
  });
  return { ops: sent, ...(carried.length > 0 && { carried }) };
}

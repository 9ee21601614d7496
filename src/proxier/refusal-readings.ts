/** Reads the kernel's counts of refused connections on request. They are few, because only refused packets create them. */
import { LITTLE_ENDIAN } from "../base/byte-order.js";
import { batchLayout } from "../netlink/element-batch.js";
import type { Kernel } from "../netlink/kernel.js";
import type { IpFamily } from "../base/ip.js";
import { REFUSALS, type RefusalKey, unpackRefusal } from "../ruleset/refusals.js";
import { TABLE_NAME } from "../ruleset/names.js";

export interface Refusal extends RefusalKey {
  /** Number of packets since the address was first refused, with pauses shorter than KEPT_MS. */
  readonly count: number;
  /** Time since the last packet, ms. */
  readonly agoMs: number;
}

/** Resolves to no refusals if the table has no counts. Rejects with KernelError. */
export async function readRefusals(kernel: Pick<Kernel, "sets" | "elements">, family: IpFamily): Promise<Refusal[]> {
  const ref = { family, table: TABLE_NAME };
  const set = (await kernel.sets(ref)).find((each) => each.set === REFUSALS);
  if (set === undefined) return [];
  const batch = await kernel.elements(ref, set);
  const { stride, timeout, expiration, counter } = batchLayout(batch);
  if (counter < 0 || timeout < 0 || expiration < 0) return [];
  const view = new DataView(batch.bytes.buffer, batch.bytes.byteOffset, batch.bytes.byteLength);
  return Array.from({ length: batch.count }, (_, i) => i * stride).flatMap((at): Refusal[] => {
    const key = unpackRefusal(batch.bytes.subarray(at, at + batch.keyLen), family);
    if (key === undefined) return [];
    const number = (offset: number): number => Number(view.getBigUint64(at + offset, LITTLE_ENDIAN));
    const count = number(counter);
    // Linux 5.10 does not count in elements that packets add.
    return count === 0 ? [] : [{ ...key, count, agoMs: Math.max(0, number(timeout) - number(expiration)) }];
  });
}

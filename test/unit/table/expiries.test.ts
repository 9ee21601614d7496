/**
 * Elements with timeouts, compared with a model: after any sequence of actions, the table and the kernel agree on the elements and their
 * expiry.
 */
import { expect, test } from "vitest";
import { FakeKernel } from "../../fakes/fake-kernel.js";
import { readU64 } from "../../../src/nft/bytes/bytes.js";
import { Table } from "../../../src/nft/engine-exports.js";
import { batchLayout } from "../../../src/nft/kernel/element-batch.js";
import { Dice } from "../../support/dice.ts";

const REF = { family: "ip", table: "timed" } as const;
const DEFAULT_MS = 5000;
/** Expiries closer than this count as equal. */
const CLOSE_MS = 25;

test.each([1, 2, 3, 4, 5, 6, 7, 8])("random changes keep the expiries right, with seed %i", async (seed) => {
  let now = 0;
  const dice = new Dice(seed);
  const pick = (limit: number): number => dice.below(limit);
  const kernel = new FakeKernel({ now: () => now });
  const table = new Table(kernel, { family: "ip", name: REF.table, clock: { now: () => now } });
  const set = table.packedSet({ set: "s", key: ["ipv4_addr"], timeoutMs: DEFAULT_MS });
  const ends = new Map<number, number>();
  const key = (last: number): Uint8Array => Uint8Array.of(192, 0, 2, last);

  const held = async (): Promise<Map<number, number>> => {
    const [info] = await kernel.sets(REF);
    const batch = await kernel.elements(REF, info);
    const { stride, expiration } = batchLayout(batch);
    const words = new Int32Array(new Uint8Array(batch.bytes).buffer);
    return new Map(
      Array.from({ length: batch.count }, (_, i) => [
        batch.bytes[i * stride + 3],
        now + readU64(words, (i * stride + expiration) / 4),
      ]),
    );
  };

  const expectSame = async (): Promise<void> => {
    const there = await held();
    for (const [last, end] of ends)
      if (end > now + CLOSE_MS) expect(there.get(last), `${last} at ${now}`).toBeCloseTo(end, -2);
    for (const [last, end] of there)
      if (end > now + CLOSE_MS) expect(ends.get(last), `${last} at ${now}`).toBeGreaterThan(now);
  };

  await table.apply();
  for (let step = 0; step < 400; step++) {
    const last = pick(12);
    const inKernel = (await held()).get(last);
    /** A read may adopt the kernel's expiry for this element. */
    const isNear = (end: number): boolean => inKernel !== undefined && Math.abs(inKernel - end) < 1100;
    const action = pick(8);
    const isThere = (ends.get(last) ?? 0) > now + CLOSE_MS;
    // An element that ends right now may or may not exist.
    if (Math.abs((ends.get(last) ?? Infinity) - now) <= CLOSE_MS) now += 2 * CLOSE_MS;
    else if (action <= 1) {
      if (!isThere && isNear(now + DEFAULT_MS)) continue;
      expect(set.put(key(last))).toBe(!isThere);
      if (!isThere) ends.set(last, now + DEFAULT_MS);
    } else if (action === 2) {
      const timeoutMs = 100 + pick(20_000);
      if (isNear(now + timeoutMs)) continue;
      expect(set.put(key(last), undefined, timeoutMs)).toBe(true);
      ends.set(last, now + timeoutMs);
    } else if (action === 3) {
      expect(set.delete(key(last))).toBe(isThere);
      ends.delete(last);
    } else if (action === 4) now += pick(3000);
    else if (action === 5) {
      table.invalidate("test");
      await table.apply();
      await expectSame();
    } else {
      await table.apply();
      await expectSame();
      expect(await table.check()).toBe("same");
      expect((await table.apply()).transactions).toBe(0);
    }
  }
  now += 30_000;
  expect(set.size).toBe(0);
  expect((await table.apply()).transactions).toBe(0);
});

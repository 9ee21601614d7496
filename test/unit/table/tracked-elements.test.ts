import { describe, expect, it } from "vitest";

import type { ElementBatch } from "../../../src/nft/kernel/kernel.js";
import { TrackedElements } from "../../../src/nft/elements/tracked-elements.js";
import type { PackedChange } from "../../../src/nft/elements/batch-writer.js";
import type { SetSpec } from "../../../src/nft/language/set-spec.js";
import { VerdictRegistry } from "../../../src/nft/elements/verdict-registry.js";

const key = (n: number): Uint8Array => Uint8Array.of(10, n >> 16, (n >> 8) & 255, n & 255);
const data = (n: number): Uint8Array => Uint8Array.of(n, 0, 0, n);
const newSet = (): TrackedElements => new TrackedElements({ set: "m", key: ["ipv4_addr"], data: ["ipv4_addr"] });

/** The last byte of each record's key, with the first byte of its data. */
const records = (batch: ElementBatch | undefined): string => {
  const stride = (batch?.keyLen ?? 0) + (batch?.dataLen ?? 0);
  return Array.from({ length: batch?.count ?? 0 }, (_, i) => {
    const at = i * stride;
    const value = batch !== undefined && batch.dataLen > 0 ? `:${batch.bytes[at + 4]}` : "";
    return `${batch?.bytes[at + 3]}${value}`;
  }).join(" ");
};
const summary = (change: PackedChange): string => `+[${records(change.adds)}] -[${records(change.deletes)}]`;

async function apply(set: TrackedElements, due = 0): Promise<string> {
  set.packing.take(false);
  const change = await set.packing.pack();
  await set.packing.settle(change, due);
  return summary(change);
}

const dump = (...pairs: [number, number][]): ElementBatch => ({
  count: pairs.length,
  keyLen: 4,
  dataLen: 4,
  bytes: Uint8Array.from(pairs.flatMap(([k, d]) => [...key(k), ...data(d)])),
});

describe("TrackedElements", () => {
  it("sends only the difference", async () => {
    const set = newSet();
    expect(set.put(key(1), data(1))).toBe(true);
    expect(set.put(key(1), data(1))).toBe(false);
    set.put(key(2), data(2));
    expect(await apply(set)).toBe("+[1:1 2:2] -[]");
    expect(set.dirty).toBe(false);
    expect(set.kernelValue(key(1))).toEqual(data(1));
    set.put(key(1), data(9));
    expect(set.kernelValue(key(1))).toEqual(data(1));
    expect(set.kernelValue(key(1))).not.toEqual(data(9));
    expect(set.kernelValue(key(3))).not.toEqual(data(3));
    set.delete(key(2));
    set.put(key(3), data(3));
    expect(set.delete(key(77))).toBe(false);
    expect(await apply(set)).toBe("+[1:9 3:3] -[1 2]");
    expect(set.kernelValue(key(2))).toBeUndefined();
    expect([set.size, set.kernelSize, set.pendingAdds]).toEqual([2, 2, 0]);
  });

  it("sends nothing for a change that was undone before the transaction", async () => {
    const set = newSet();
    set.put(key(1), data(1));
    await apply(set);
    set.put(key(1), data(2));
    set.put(key(1), data(1));
    set.put(key(2), data(2));
    set.delete(key(2));
    set.delete(key(1));
    set.put(key(1), data(1));
    expect(await apply(set)).toBe("+[] -[]");
    expect(set.has(key(2))).toBe(false);
  });

  it("copies keys and data", () => {
    const set = newSet();
    const scratch = key(1);
    const value = data(4);
    set.put(scratch, value);
    scratch[3] = 2;
    value[0] = 5;
    expect(set.get(key(1))).toEqual(data(4));
    expect(set.put(key(1), data(4))).toBe(false);
    set.delete(key(1));
    expect(set.get(key(1))).toBeUndefined();
  });

  it("keeps an element until it is released as often as it was retained, with the latest data", async () => {
    const set = newSet();
    set.retain(key(1), data(1));
    set.retain(key(1), data(2));
    set.release(key(1));
    expect(await apply(set)).toBe("+[1:2] -[]");
    set.retain(key(1), data(2));
    set.release(key(1));
    expect(await apply(set)).toBe("+[] -[]");
    set.release(key(1));
    set.release(key(1));
    expect(await apply(set)).toBe("+[] -[1]");
    // Deletes it regardless of users.
    set.retain(key(3), data(3));
    set.retain(key(3), data(3));
    expect(set.delete(key(3))).toBe(true);
    expect(await apply(set)).toBe("+[] -[]");
  });

  it("checks widths", () => {
    const set = newSet();
    expect(() => set.put(Uint8Array.of(1), data(1))).toThrow(/4 bytes/);
    expect(() => set.put(key(1))).toThrow(/expected 4 bytes of data/);
    expect(() => set.has(Uint8Array.of(1, 2, 3))).toThrow(/4 bytes/);
    expect(() => set.replaceNets([])).toThrow(/interval/);
  });

  it("counts the elements that the next transaction adds", async () => {
    const set = newSet();
    for (let i = 0; i < 5; i++) set.put(key(i), data(i));
    expect(set.pendingAdds).toBe(5);
    set.delete(key(0));
    expect(set.pendingAdds).toBe(4);
    await apply(set);
    set.put(key(1), data(9));
    set.delete(key(2));
    set.put(key(2), data(2));
    expect(set.pendingAdds).toBe(1);
    set.put(key(1), data(1));
    expect(set.pendingAdds).toBe(0);
  });

  it("repeats everything after an abort, packed or not", async () => {
    const set = newSet();
    set.put(key(1), data(1));
    await apply(set);
    set.put(key(1), data(2));
    set.put(key(2), data(2));
    set.put(key(3), data(3));
    set.packing.take(false);
    const change = await set.packing.pack(2);
    expect(summary(change)).toBe("+[1:2 2:2] -[1]");
    await set.packing.giveBack();
    await set.packing.abort(change);
    expect(set.kernelValue(key(1))).toEqual(data(1));
    expect(await apply(set)).toBe("+[3:3 1:2 2:2] -[1]");
    expect(await apply(set)).toBe("+[] -[]");
  });

  it("renews the time of an element again after an abort", async () => {
    const set = new TrackedElements({ set: "t", key: ["ipv4_addr"], timeoutMs: 60_000 }, { now: () => 0 });
    set.put(key(1));
    await apply(set);
    set.put(key(1), undefined, 90_000);
    set.packing.take(false);
    await set.packing.abort(await set.packing.pack());
    expect(set.dirty).toBe(true);
    set.packing.take(false);
    const { adds, deletes } = await set.packing.pack();
    expect([adds?.count, deletes?.count]).toEqual([1, 1]);
  });

  it("starts a grace period with the transaction, not before", async () => {
    const set = newSet();
    set.put(key(1), data(1));
    set.put(key(2), data(2));
    await apply(set);
    set.delete(key(2), true);
    expect(set.has(key(2))).toBe(false);
    expect(set.nextDue).toBeUndefined();
    expect(await apply(set, 500)).toBe("+[] -[]");
    expect(set.nextDue).toBe(500);
    set.endGrace(499);
    expect(await apply(set)).toBe("+[] -[]");
    expect(set.endGrace(500)).toBe(1);
    expect(await apply(set)).toBe("+[] -[2]");
    expect(set.nextDue).toBeUndefined();
  });

  it("ends some of the expired grace periods, and leaves the others for the next time", async () => {
    const set = newSet();
    for (let n = 1; n <= 3; n++) set.put(key(n), data(n));
    await apply(set);
    for (let n = 1; n <= 3; n++) set.delete(key(n), true);
    await apply(set, 500);
    expect(set.endGrace(500, 2)).toBe(2);
    expect(await apply(set)).toBe("+[] -[1 2]");
    expect(set.nextDue).toBe(500);
    expect(set.endGrace(500, 2)).toBe(1);
    expect(await apply(set)).toBe("+[] -[3]");
  });

  it("cancels a deferred deletion when the element is desired again, and a new one has its own grace period", async () => {
    const set = newSet();
    set.put(key(1), data(1));
    await apply(set);
    set.delete(key(1), true);
    await apply(set, 500);
    set.put(key(1), data(1));
    set.delete(key(1), true);
    await apply(set, 900);
    set.endGrace(600);
    expect(await apply(set)).toBe("+[] -[]");
    set.endGrace(900);
    expect(await apply(set)).toBe("+[] -[1]");
    set.put(key(1), data(1));
    set.delete(key(1), true);
    expect(await apply(set)).toBe("+[] -[]");
    expect(set.kernelSize).toBe(0);
  });

  it("restarts the grace period of deferred deletions after an abort", async () => {
    const set = newSet();
    set.put(key(1), data(1));
    await apply(set);
    set.delete(key(1), true);
    set.packing.take(false);
    await set.packing.abort(await set.packing.pack());
    expect(set.nextDue).toBeUndefined();
    await apply(set, 700);
    expect(set.nextDue).toBe(700);
  });

  it("is recreated with everything, including elements in their grace period", async () => {
    const set = newSet();
    for (let i = 1; i <= 3; i++) set.put(key(i), data(i));
    await apply(set);
    set.delete(key(2), true);
    set.delete(key(3));
    set.put(key(4), data(4));
    set.packing.take(true);
    const change = await set.packing.pack();
    expect(summary(change)).toBe("+[1:1 2:2 4:4] -[]");
    await set.packing.settle(change, 300);
    expect([set.kernelSize, set.nextDue]).toEqual([3, 300]);
    expect(await apply(set)).toBe("+[] -[]");
  });

  it("can be compared with a dump", async () => {
    const set = newSet();
    set.put(key(1), data(1));
    set.put(key(2), data(2));
    await set.load(dump([1, 1], [2, 9], [3, 3]));
    expect(set.kernelSize).toBe(3);
    expect(await apply(set)).toBe("+[2:2] -[2 3]");
    await set.load(dump([1, 1]));
    expect(await apply(set)).toBe("+[2:2] -[]");
    await set.load();
    expect(await apply(set)).toBe("+[1:1 2:2] -[]");
  });

  it.each([false, true])("writes the difference from a first dump, deferred deletions: %s", async (deferUndesired) => {
    let seed = 11;
    const next = (n: number): number => {
      seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
      return Math.floor((seed / 0x1_0000_0000) * n);
    };
    for (let round = 0; round < 200; round++) {
      const spec: SetSpec = { set: "m", key: ["ipv4_addr"], data: ["ipv4_addr"], deferUndesired };
      const set = new TrackedElements(spec);
      const wanted = new Map<number, number>();
      const deleted = new Set<number>();
      const change = (): void => {
        for (let i = next(8); i > 0; i--) {
          const [n, value] = [next(20), next(2)];
          if (next(4) > 0) set.put(key(n), data(value));
          else if (set.delete(key(n))) deleted.add(n);
          if (set.has(key(n))) wanted.set(n, value);
          else wanted.delete(n);
        }
      };
      const kernel = new Map(Array.from({ length: next(20) }, () => [next(20), next(2)]));
      if (next(2) === 0) change();
      deleted.clear();
      expect((await set.load(dump(...kernel))).drift).toEqual({ gone: 0, added: kernel.size, changed: 0 });
      expect(set.kernelSize).toBe(kernel.size);
      change();
      expect(set.pendingAdds).toBe([...wanted].filter(([n, value]) => kernel.get(n) !== value).length);
      const write = async (): Promise<void> => {
        set.packing.take(false);
        const { adds, deletes, ...lists } = await set.packing.pack();
        for (let i = 0; i < (deletes?.count ?? 0); i++) {
          expect(kernel.delete(deletes?.bytes[i * 4 + 3] ?? -1)).toBe(true);
        }
        for (let i = 0; i < (adds?.count ?? 0); i++) {
          const [n, value] = [adds?.bytes[i * 8 + 3] ?? -1, adds?.bytes[i * 8 + 4] ?? -1];
          expect(kernel.has(n)).toBe(false);
          kernel.set(n, value);
        }
        await set.packing.settle({ ...lists, ...(adds && { adds }), ...(deletes && { deletes }) }, 1);
        expect(set.dirty).toBe(false);
      };
      const inherited = new Map([...kernel].filter(([n]) => !deleted.has(n)));
      await write();
      const inOrder = (map: ReadonlyMap<number, number>): [number, number][] => [...map].toSorted(([a], [b]) => a - b);
      expect(inOrder(kernel)).toEqual(inOrder(deferUndesired ? new Map([...inherited, ...wanted]) : wanted));
      set.endGrace(1);
      await write();
      expect(inOrder(kernel)).toEqual(inOrder(wanted));
      expect([set.size, set.kernelSize]).toEqual([wanted.size, wanted.size]);
      for (let n = 0; n < 20; n++) {
        const value = wanted.get(n);
        expect(set.kernelValue(key(n))).toEqual(value === undefined ? undefined : data(value));
      }
    }
  });

  it("keeps verdicts by id whatever their numbers in a batch", async () => {
    const verdicts = new VerdictRegistry();
    const set = new TrackedElements({ set: "v", key: ["ipv4_addr"], data: "verdict" }, { verdicts });
    const id = (chain: string): Uint8Array =>
      new Uint8Array(Uint32Array.of(verdicts.id({ verdict: "goto", chain })).buffer);
    id("unused");
    set.put(key(1), id("a"));
    set.put(key(2), id("b"));
    set.put(key(3), id("a"));
    expect(verdicts.usesOf("a")).toBe(2);
    expect(verdicts.takeNewlyUsed()).toEqual(["a", "b"]);
    set.packing.take(false);
    const change = await set.packing.pack();
    expect(change.adds?.verdicts).toEqual([
      { verdict: "goto", chain: "a" },
      { verdict: "goto", chain: "b" },
    ]);
    await set.packing.settle(change, 0);
    expect(set.kernelValue(key(2))).toEqual(id("b"));
    const verdict = { verdict: "goto", chain: "b" } as const;
    await set.load({
      count: 1,
      keyLen: 4,
      dataLen: 4,
      verdicts: [verdict],
      bytes: Uint8Array.of(...key(2), 0, 0, 0, 0),
    });
    expect(set.kernelValue(key(2))).toEqual(id("b"));
    set.delete(key(1));
    set.put(key(3), id("b"));
    expect(verdicts.usesOf("a")).toBe(0);
    expect(verdicts.usesOf("b")).toBe(2);
    expect(() => set.put(key(4), data(255))).toThrow(/verdictId/);
  });

  it("behaves like two maps through random changes, dumps and failures", async () => {
    let seed = 42;
    const next = (n: number): number => {
      seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
      return Math.floor((seed / 0x1_0000_0000) * n);
    };
    const set = newSet();
    const wanted = new Map<number, number>();
    const kernel = new Map<number, number>();
    const change = (): void => {
      const n = next(40);
      const value = next(3);
      if (next(3) === 0) {
        expect(set.delete(key(n))).toBe(wanted.delete(n));
      } else {
        expect(set.put(key(n), data(value))).toBe(wanted.get(n) !== value);
        wanted.set(n, value);
      }
    };
    const expectKernel = (): void => {
      for (let n = 0; n < 100; n++) {
        const value = kernel.get(n);
        expect(set.kernelValue(key(n))).toEqual(value === undefined ? undefined : data(value));
      }
    };
    for (let round = 0; round < 400; round++) {
      for (let i = next(12); i > 0; i--) change();
      expectKernel();
      if (next(10) === 0) {
        expect((await set.load(dump(...kernel))).drift).toEqual({ gone: 0, added: 0, changed: 0 });
      }
      if (next(20) === 0) {
        const [gone] = kernel.keys();
        const other = [...kernel.keys()].at(-1);
        const drift = { gone: 0, added: 1, changed: 0 };
        if (gone !== undefined && kernel.delete(gone)) drift.gone++;
        if (other !== undefined && other !== gone) {
          kernel.set(other, 77);
          drift.changed++;
        }
        kernel.set(99, 1);
        expect((await set.load(dump(...kernel))).drift).toEqual(drift);
        expectKernel();
      }
      if (next(10) === 0) {
        expect((await set.load()).drift).toEqual({ gone: kernel.size, added: 0, changed: 0 });
        kernel.clear();
        expect([set.kernelSize, set.pendingAdds, set.dirty]).toEqual([0, wanted.size, set.dirty || wanted.size > 0]);
        for (let i = next(6); i > 0; i--) change();
      }
      const full = next(12) === 0;
      set.packing.take(full);
      const fails = next(5) === 0;
      const packed = await set.packing.pack(fails ? next(4) : Infinity);
      if (fails) {
        await set.packing.giveBack();
        await set.packing.abort(packed);
        continue;
      }
      const sent = full ? new Map<number, number>() : kernel;
      const { adds, deletes } = packed;
      for (let i = 0; i < (deletes?.count ?? 0); i++) expect(sent.delete(deletes?.bytes[i * 4 + 3] ?? -1)).toBe(true);
      for (let i = 0; i < (adds?.count ?? 0); i++) {
        expect(sent.has(adds?.bytes[i * 8 + 3] ?? -1)).toBe(false);
        sent.set(adds?.bytes[i * 8 + 3] ?? -1, adds?.bytes[i * 8 + 4] ?? -1);
      }
      expect([...sent].toSorted(([a], [b]) => a - b)).toEqual([...wanted].toSorted(([a], [b]) => a - b));
      kernel.clear();
      for (const [k, v] of wanted) kernel.set(k, v);
      await set.packing.settle(packed, 0);
      expect(set.size).toBe(wanted.size);
      expect(set.kernelSize).toBe(kernel.size);
      expectKernel();
      expect([set.pendingAdds, set.dirty]).toEqual([0, false]);
    }
  });

  it.each([1, 2])("keeps keys and data of %i bytes, which the kernel does not pad", async (width) => {
    const type = width === 1 ? "inet_proto" : "inet_service";
    const spec: SetSpec = { set: "m", key: [type], data: [type] };
    const set = new TrackedElements(spec);
    const field = (n: number): Uint8Array => Uint8Array.from({ length: width }, (_, i) => (i === width - 1 ? n : 7));
    for (const n of [1, 2, 3]) set.put(field(n), field(n + 10));
    set.packing.take(false);
    const change = await set.packing.pack();
    const bytes = [1, 2, 3].flatMap((n) => [...field(n), ...field(n + 10)]);
    expect([...(change.adds?.bytes ?? [])]).toEqual(bytes);
    await set.packing.settle(change, 0);
    set.put(field(3), field(4));
    expect(set.kernelValue(field(3))).toEqual(field(13));
    const flagged = [3, 2].flatMap((n) => [...field(n), ...field(n + 10), 0, 0, 0, 0]);
    // A dump that begins anywhere in its buffer.
    const dumped = new Uint8Array(Uint8Array.of(0, ...flagged).buffer, 1);
    const { drift } = await set.load({ count: 2, keyLen: width, dataLen: width, flags: true, bytes: dumped });
    expect(drift).toEqual({ gone: 1, added: 0, changed: 0 });
    set.delete(field(2));
    set.packing.take(false);
    const next = await set.packing.pack();
    const byNumber = (a: number, b: number): number => a - b;
    expect([...(next.deletes?.bytes ?? [])].toSorted(byNumber)).toEqual([...field(2), ...field(3)].toSorted(byNumber));
    expect(next.adds?.count).toBe(2);
  });

  it("retains and releases lists like single elements, through random changes", async () => {
    let seed = 7;
    const next = (n: number): number => {
      seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
      return Math.floor((seed / 0x1_0000_0000) * n);
    };
    const spec: SetSpec = { set: "m", key: ["ipv4_addr", "index"], data: ["ipv4_addr", "inet_service"] };
    const [lists, single] = [0, 1].map(() => new TrackedElements(spec));
    const indexed = (n: number, index: number): Uint8Array =>
      Uint8Array.of(...key(n), ...new Uint8Array(Uint32Array.of(index).buffer));
    for (let round = 0; round < 1_000; round++) {
      const [n, count, base] = [next(5), next(12), next(2) * 2 ** 24];
      const words = Int32Array.from({ length: count * 2 }, () => next(2) - 1);
      const datum = (i: number): Uint8Array => new Uint8Array(words.buffer, i * 8, 8);
      const kind = next(3);
      if (kind === 0) {
        lists.retainList(key(n), base, words, count);
        for (let i = 0; i < count; i++) single.retain(indexed(n, base + i), datum(i));
      } else if (kind === 1) {
        const deferred = next(2) === 0;
        lists.releaseList(key(n), base, count, deferred);
        for (let i = 0; i < count; i++) single.release(indexed(n, base + i), deferred);
      } else {
        const holds = Array.from({ length: count }, (_, i) => single.kernelValue(indexed(n, base + i))?.join());
        const expected = holds.every((held, i) => held === datum(i).join());
        expect(lists.kernelHoldsList(key(n), base, words, count)).toBe(expected);
        const all = Array.from({ length: count }, (_, i) => single.kernelValue(indexed(n, base + i)));
        if (all.includes(undefined)) continue;
        const held = new Int32Array(Uint8Array.from(all.flatMap((value) => [...(value ?? [])])).buffer);
        expect(lists.kernelHoldsList(key(n), base, held, count)).toBe(true);
      }
      expect([lists.size, lists.pendingAdds, lists.dirty]).toEqual([single.size, single.pendingAdds, single.dirty]);
      if (next(10) === 0) {
        for (const set of [lists, single]) set.endGrace(round);
        expect(await apply(lists, round + 30)).toBe(await apply(single, round + 30));
        expect(lists.kernelSize).toBe(single.kernelSize);
      }
    }
    expect(() => lists.retainList(indexed(1, 1), 0, new Int32Array(2), 1)).toThrow(RangeError);
  });
});

/** What clients of a consistent service see when endpoints come and go, from the slots alone. */
import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { EndpointList } from "../../../src/model/endpoints.js";
import { SLOT_COUNTS } from "../../../src/model/balance.js";
import { assignSlots, slotCount, slotsOf } from "../../../src/ruleset/slots.js";

const FAMILIES = ["ip", "ip6"] as const;
type Family = (typeof FAMILIES)[number];

/** The first `count` pods of a cluster with 20 on each node; `without` are not among them. */
function pods(family: Family, count: number, without: readonly number[] = []): EndpointList {
  const all = Array.from({ length: count }, (_, i) => {
    const [node, pod] = [Math.floor(i / 20), 5 + (i % 20)];
    const address = family === "ip" ? `10.244.${node}.${pod}` : `fd00:10:244:${node.toString(16)}::${pod.toString(16)}`;
    return { address, port: 8080, local: false };
  });
  return EndpointList.of(
    family,
    all.filter((_, i) => !without.includes(i)),
  );
}

/** Who serves each of 16,384 clients, spread evenly over the hash's range. */
function served(list: EndpointList, count = slotCount(list.length, { slots: 0 })): (number | string)[] {
  const slots = assignSlots(list, count);
  return Array.from({ length: 16_384 }, (_, i) => list.id(slots[Math.floor((i * count) / 16_384)]));
}

/** Share of the clients of others than the endpoint at `gone` that another one serves without it. */
function moved(family: Family, count: number, gone: number, slots?: number): number {
  const all = pods(family, count);
  const before = served(all, slots);
  const after = served(pods(family, count, [gone]), slots);
  const id = all.id(gone);
  const others = before.flatMap((endpoint, i) => (endpoint === id ? [] : [endpoint !== after[i]]));
  return others.filter(Boolean).length / others.length;
}

describe.each(FAMILIES)("slots of %s endpoints", (family) => {
  it.each([2, 3, 5, 10, 20, 32, 50, 100, 128, 200, 1000])(
    "%i: one that goes moves at most 2 % of the others' clients",
    (count) => {
      for (const gone of [0, count >> 1, count - 1]) expect(moved(family, count, gone)).toBeLessThanOrEqual(0.02);
    },
  );

  it("move no more when the list takes the step to more slots", () => {
    expect([32, 33].map((count) => slotCount(count, { slots: 0 }))).toEqual([1024, 4096]);
    for (const gone of [0, 16, 32]) expect(moved(family, 33, gone)).toBeLessThanOrEqual(0.02);
  });

  it.each(SLOT_COUNTS)("of %i as asked for, as well", (slots) => {
    for (const count of [2, 8]) expect(moved(family, count, 1, slots)).toBeLessThanOrEqual(0.02);
  });

  it.each([2, 3, 10, 32, 33, 100, 128, 129, 300, 1000])(
    "%i: none has much more than its share, and each has some",
    (count) => {
      const list = pods(family, count);
      const slots = assignSlots(list, slotCount(count, { slots: 0 }));
      const counts = Array.from({ length: count }, () => 0);
      for (const endpoint of slots) counts[endpoint]++;
      const share = slots.length / count;
      expect(Math.max(...counts)).toBeLessThanOrEqual(Math.ceil(share * 1.1));
      expect(Math.min(...counts)).toBeGreaterThan(0);
    },
  );

  it("do not depend on the order in which endpoints came", () => {
    const list = pods(family, 40);
    const other = list.pick(Array.from({ length: 40 }, (_, i) => (i * 7) % 40));
    expect(served(other)).toEqual(served(list));
  });
});

describe("slots with weights", () => {
  const list = pods("ip", 4);
  const counted = (slots: Uint16Array): number[] => [0, 1, 2, 3].map((i) => slots.filter((one) => one === i).length);

  it("are what the weights say, to a whole slot, where chance draws", () => {
    expect(counted(assignSlots(list, 1024, [1, 2, 5, 0], true))).toEqual([128, 256, 640, 0]);
    const thirds = counted(assignSlots(list, 1024, [1, 1, 1, 0], true));
    expect(thirds.toSorted((a, b) => a - b)).toEqual([0, 341, 341, 342]);
  });

  it("are hardly more where the client decides, and others' clients stay when a weight changes", () => {
    const weights = [1, 2, 5, 4];
    const [before, after] = [weights, weights.with(3, 0)].map((w) => assignSlots(list, 4096, w));
    for (const [i, count] of counted(before).entries()) {
      expect(count).toBeLessThanOrEqual(Math.ceil((1.1 * 4096 * weights[i]) / 12));
      expect(count).toBeGreaterThan((0.8 * 4096 * weights[i]) / 12);
    }
    expect(counted(after)[3]).toBe(0);
    expect(before.filter((endpoint, slot) => endpoint !== 3 && after[slot] !== endpoint).length).toBeLessThan(
      4096 * 0.02,
    );
  });

  it("are as many as the least weight needs", () => {
    const weights = new Map([[list.id(0), 1000]]);
    const { cluster } = slotsOf({ by: "chance", slots: 0, weights }, list, pods("ip", 0));
    expect(cluster.length).toBe(16_384);
    expect(
      counted(cluster)
        .slice(1)
        .toSorted((a, b) => a - b),
    ).toEqual([16, 16, 17]);
  });
});

/** Nodes of a cluster run different versions for a while, and a client's endpoint must not depend on which. */
describe("which endpoint has a slot stays as it was", () => {
  const weighted = (count: number): number[] => Array.from({ length: count }, (_, i) => (i * 7) % 4);
  it.each([
    ["ip", 10, 1024, false, "20e04fe38d02fa07"],
    ["ip6", 40, 4096, false, "ac9ddffbcddad4b9"],
    ["ip", 200, 16_384, true, "9187c3180764f865"],
    ["ip6", 30, 256, true, "d9e5ec21876de807"],
  ] as const)("%s, %i endpoints, %i slots, weights: %s", (family, count, slots, hasWeights, expected) => {
    const assigned = assignSlots(pods(family, count), slots, hasWeights ? weighted(count) : undefined);
    const text = Array.from(assigned).join();
    expect(createHash("sha256").update(text).digest("hex").slice(0, 16)).toBe(expected);
  });
});

describe("the number of slots", () => {
  it("is what is asked for, but never less than endpoints", () => {
    expect(slotCount(5, { slots: 256 })).toBe(256);
    expect(slotCount(300, { slots: 256 })).toBe(16_384);
    expect([1, 32, 33, 128, 129, 16_384].map((count) => slotCount(count, { slots: 0 }))).toEqual([
      1024, 1024, 4096, 4096, 16_384, 16_384,
    ]);
  });
});

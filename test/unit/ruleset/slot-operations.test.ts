/** Operations for changes of a consistent service: the slots that differ, in one transaction; nothing if no service uses slots. */
import { describe, expect, it } from "vitest";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { Proxier } from "../../../src/proxier/proxier.js";
import { makeProxier, sync } from "../proxier/support/proxier.js";
import { countTurns } from "../../support/counted-turns.ts";
import { putObjects } from "../../support/decoded.js";
import { service, slice } from "../model/objects.ts";

const CONSISTENT = { annotations: { "nft-proxier.dev/balance": "consistent" } };
const pods = (count: number): string[] => Array.from({ length: count }, (_, i) => `10.1.0.${i + 1}`);

let now = 0;

async function started(metadata: Record<string, unknown>, kernel = new FakeKernel()): Promise<Proxier> {
  const proxier = makeProxier(kernel, { clock: { now: () => now } });
  putObjects(proxier, service("web", {}, { metadata }), slice("web-1", "web", pods(10)));
  proxier.synced();
  await sync(proxier);
  return proxier;
}

describe("a consistent service", () => {
  it("writes a removed endpoint as its slots, each deleted and added, in one transaction", async () => {
    const proxier = await started(CONSISTENT);
    putObjects(proxier, service("web", {}, { metadata: CONSISTENT }), slice("web-1", "web", pods(9)));
    const { transactions, operations, total } = await sync(proxier);
    const { add, delete: gone } = operations.element;
    expect({ transactions, others: total - add - gone }).toEqual({ transactions: 1, others: 0 });
    expect(add).toBe(gone);
    // A tenth of 1,024, at most a tenth more, and 2 % of the others.
    expect(add).toBeGreaterThan(80);
    expect(add).toBeLessThan(133);
  });

  it("is not written again at the next start, in whatever order endpoints arrive", async () => {
    const kernel = new FakeKernel();
    await started(CONSISTENT, kernel);
    const again = makeProxier(kernel, { clock: { now: () => now } });
    putObjects(again, service("web", {}, { metadata: CONSISTENT }), slice("web-1", "web", pods(10).toReversed()));
    again.synced();
    expect((await sync(again)).transactions).toBe(0);
  });

  it("keeps slots that packets in flight may still use for a while when the list has fewer slots", async () => {
    const proxier = await started(CONSISTENT);
    putObjects(proxier, service("web"), slice("web-1", "web", pods(10)));
    const first = await sync(proxier);
    // Slots 0 to 9 now belong to the endpoints; slots of another endpoint are replaced. The class and the chain are new.
    expect(first.operations.element.delete).toBeLessThanOrEqual(11);
    now += 10_000;
    expect((await sync(proxier)).operations.element.delete).toBe(1024 - 10);
  });
});

describe("a service with weights", () => {
  const WEIGHTED = { annotations: { "nft-proxier.dev/weights": "10.1.0.1:3" } };

  it("is not written again at the next start, and a change moves only as much as the shares need", async () => {
    const kernel = new FakeKernel();
    const first = await started(WEIGHTED, kernel);
    // The history that a start finds in the kernel differs from what it would assign by itself.
    putObjects(first, service("web", {}, { metadata: WEIGHTED }), slice("web-1", "web", pods(9)));
    await sync(first);
    const again = makeProxier(kernel, { clock: { now: () => now } });
    putObjects(again, service("web", {}, { metadata: WEIGHTED }), slice("web-1", "web", pods(9).toReversed()));
    again.synced();
    expect((await sync(again)).transactions).toBe(0);
    putObjects(again, service("web", {}, { metadata: WEIGHTED }), slice("web-1", "web", pods(8)));
    const { operations } = await sync(again);
    // One of eleven shares of 1,024 slots.
    expect(operations.element.add).toBe(93);
  });
});

describe("a consistent service of a thousand endpoints", () => {
  it("keeps the event loop responsive while slots are assigned", async () => {
    const kernel = new FakeKernel();
    const proxier = makeProxier(kernel, { clock: { now: () => now } });
    const thousand = Array.from({ length: 1000 }, (_, i) => `10.1.${i >> 8}.${i & 255}`);
    putObjects(proxier, service("web", {}, { metadata: CONSISTENT }), slice("web-1", "web", thousand));
    proxier.synced();
    const { turns, mostLooks } = await countTurns(() => proxier.prepare());
    // A slice of the slots, and one of the proxier.
    expect(mostLooks).toBeLessThanOrEqual(10);
    // It takes 24, of which the slots have 11.
    expect(turns).toBeGreaterThan(20);
  });
});

it("a service that does not request slots has none, and no chain hashes", async () => {
  const kernel = new FakeKernel();
  await started({}, kernel);
  const rules = await kernel.rules({ family: "ip", table: "kube-proxy" });
  expect(rules.length).toBeGreaterThan(10);
  expect(rules.flatMap(({ exprs }) => exprs.map(({ type }) => type))).not.toContain("hash");
});

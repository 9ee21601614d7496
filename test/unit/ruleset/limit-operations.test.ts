/**
 * Operations for connection limits: a chain with the first service that has such limits, only elements for further ones, and nothing
 * without such services.
 */
import { expect, it } from "vitest";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { Proxier } from "../../../src/proxier/proxier.js";
import type { ApplyResult } from "../../../src/nft/sync/apply-result.js";
import { makeProxier, sync } from "../proxier/support/proxier.js";
import { decoded } from "../../support/decoded.js";
import { service, slice } from "../model/objects.ts";

const TABLE = { family: "ip", table: "kube-proxy" } as const;
const LIMITED = { "nft-proxier.dev/max-connections": "5", "nft-proxier.dev/rate-per-client": "1/second" };
let now = 0;

async function started(kernel: FakeKernel): Promise<Proxier> {
  const proxier = makeProxier(kernel, { clock: { now: () => now } });
  for (const n of [1, 2]) {
    put(proxier, n, {});
    proxier.upsert(decoded({ kind: "EndpointSlice", object: slice(`web-${n}-1`, `web-${n}`, [`10.1.0.${n}`]) }));
  }
  proxier.synced();
  await sync(proxier);
  return proxier;
}

function put(proxier: Proxier, n: number, annotations: Readonly<Record<string, string>>): void {
  const object = service(`web-${n}`, { clusterIP: `10.0.0.${n}` }, { metadata: { annotations } });
  proxier.upsert(decoded({ kind: "Service", object }));
}

const others = ({ total, operations: { element } }: ApplyResult): number => total - element.add - element.delete;

async function names(kernel: FakeKernel): Promise<string[]> {
  const [chains, sets] = await Promise.all([kernel.chains(TABLE), kernel.sets(TABLE)]);
  return [...chains.map(({ chain }) => chain), ...sets.map(({ set }) => set)].filter((name) =>
    /^(over-)?limit/.test(name),
  );
}

it("the first service adds the rules, each further one two elements, and rules without use are removed after a minute", async () => {
  const kernel = new FakeKernel();
  const proxier = await started(kernel);
  expect(await names(kernel)).toEqual([]);
  put(proxier, 1, LIMITED);
  const first = await sync(proxier);
  // A new chain is committed before anything that refers to it.
  expect(first.transactions).toBe(2);
  expect(others(first)).toBeGreaterThan(5);
  put(proxier, 2, LIMITED);
  const second = await sync(proxier);
  expect([others(second), second.operations.element]).toEqual([0, { add: 2, delete: 0 }]);
  put(proxier, 2, {});
  const off = await sync(proxier);
  expect([others(off), off.operations.element]).toEqual([0, { add: 0, delete: 2 }]);
  put(proxier, 1, {});
  expect(others(await sync(proxier))).toBe(0);
  await sync(proxier);
  now += 61_000;
  await sync(proxier);
  expect(await names(kernel)).toEqual([]);
});

it("a service keeps its number over a restart, and receives another one with other limits", async () => {
  const kernel = new FakeKernel();
  const proxier = await started(kernel);
  put(proxier, 1, LIMITED);
  await sync(proxier);
  const again = makeProxier(kernel, { clock: { now: () => now } });
  for (const n of [1, 2]) {
    put(again, n, n === 1 ? LIMITED : {});
    again.upsert(decoded({ kind: "EndpointSlice", object: slice(`web-${n}-1`, `web-${n}`, [`10.1.0.${n}`]) }));
  }
  again.synced();
  expect((await sync(again)).transactions).toBe(0);
  put(again, 1, { ...LIMITED, "nft-proxier.dev/max-connections": "6" });
  const { operations } = await sync(again);
  // The service's element is replaced; the number's element is deleted and another one is added.
  expect(operations.element).toEqual({ add: 2, delete: 2 });
});

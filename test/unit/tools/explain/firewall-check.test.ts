/** The search for blocking firewalls stays within its budget, and reports what it has not checked. */
import { expect, test } from "vitest";
import { checkFirewalls } from "../../../../src/tools/explain/firewall/firewall-check.js";
import type { ServicePacket } from "../../../../src/tools/explain/firewall/service-packets.js";
import { CmpOp, Hook, PayloadBase } from "../../../../src/nft/kernel/constants.js";
import type { Expr } from "../../../../src/nft/kernel/kernel.js";
import { FakeKernel } from "../../../fakes/fake-kernel.ts";
import { countTurns } from "../../../support/counted-turns.ts";
import { tableWith } from "../../../support/operations.ts";

const WALL = { family: "inet", table: "wall" } as const;
const portIs = (port: number): Expr[] => [
  { type: "payload", base: PayloadBase.transport, offset: 2, len: 2, dreg: 1 },
  { type: "cmp", sreg: 1, op: CmpOp.eq, data: Uint8Array.of(port >> 8, port & 0xff) },
  { type: "immediate", dreg: 0, data: { verdict: "drop" } },
];

async function kernelWith(...rules: readonly Expr[][]): Promise<FakeKernel> {
  const kernel = new FakeKernel();
  const base = { type: "filter", hook: Hook.forward, priority: 0 } as const;
  await kernel.commit(tableWith(WALL, { gate: { base, rules } }));
  return kernel;
}

function* packets(service: string): Iterable<ServicePacket> {
  const n = Number(service.slice(1));
  for (let i = 0; i < 10; i++) {
    const endpoint = { address: `10.${n % 200}.${i}.7`, port: 8000 + (n % 50), isLocal: false };
    yield { family: "ip", protocol: "tcp", service, address: `10.96.${n >> 8}.${n & 255}`, port: 80, endpoint };
  }
}
const names = (count: number): string[] => Array.from({ length: count }, (_, i) => `s${i}`);

test("the one of 5,000 services that meets the rule is found, and the event loop stays responsive", async () => {
  const kernel = await kernelWith(portIs(8007), portIs(9999));
  const {
    result: check,
    turns,
    mostLooks,
  } = await countTurns(() =>
    checkFirewalls({ kernel, services: names(5000), packets, ownMark: 0x4000, budgetMs: 1_000_000 }),
  );
  expect(check).toMatchObject({ checked: 5000, services: 5000, unjudged: 0, unread: [] });
  expect(check.obstacles).toHaveLength(1);
  expect(check.obstacles[0]).toMatchObject({
    chain: "gate",
    rule: expect.stringContaining("dport 8007 drop") as string,
  });
  expect(check.obstacles[0].services).toHaveLength(100);
  // A look after each of ten packets, and one before each service.
  expect(mostLooks).toBeLessThanOrEqual(6);
  expect(turns).toBeGreaterThan((5000 * 10) / 6);
});

test("when its time is over, it says how many services it has checked", async () => {
  const kernel = await kernelWith(portIs(8007));
  // Each service takes eleven looks at the clock, and each time slice one, of one millisecond each.
  const { result: check } = await countTurns(() =>
    checkFirewalls({ kernel, services: names(5000), packets, ownMark: 0x4000, budgetMs: 150 }),
  );
  expect(check.services).toBe(5000);
  expect(check.checked).toBeGreaterThan(5);
  expect(check.checked).toBeLessThan(20);
});

test("without other programs' base chains nothing is computed for services", async () => {
  const kernel = new FakeKernel();
  const asked = (): never => {
    throw new Error("nothing is to be asked");
  };
  const services = { [Symbol.iterator]: asked };
  expect(await checkFirewalls({ kernel, services, packets: asked, ownMark: 0x4000 })).toMatchObject({ services: 0 });
});

test("an unknown expression decides nothing, and is named", async () => {
  const kernel = await kernelWith([
    { type: "limit", rate: 5n, unit: 1n },
    { type: "immediate", dreg: 0, data: { verdict: "drop" } },
  ]);
  const check = await checkFirewalls({ kernel, services: names(3), packets, ownMark: 0x4000 });
  expect(check).toMatchObject({ obstacles: [], checked: 3, unjudged: 3 });
  expect(check.unjudgedRule).toMatch(/^inet wall gate: limit rate 5\/second drop/);
});

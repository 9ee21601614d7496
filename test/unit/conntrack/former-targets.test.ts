import { expect, test } from "vitest";
import { FormerTargets } from "../../../src/conntrack/reconcile/former-targets.js";
import type { ServiceAddress } from "../../../src/model/service-address.js";

const claim = (port = 53): ServiceAddress => ({ family: "ip", address: "10.0.0.1", protocol: "UDP", port });
const given = (...endpoints: string[]) => ({ cause: "deleted", endpoints: new Set(endpoints) }) as const;
/** An entry to `claim()`, translated to this endpoint. */
function entry(source: string, sourcePort: number) {
  const client = { source: "10.1.0.9", sourcePort: 4711, protocol: 17 };
  const original = { ...client, destination: "10.0.0.1", destinationPort: 53 };
  const reply = { source, sourcePort, protocol: 17, destination: client.source, destinationPort: client.sourcePort };
  return { family: "ip", original, reply } as const;
}

test("after repeated removals with other endpoints, only the last removals are remembered", () => {
  const former = new FormerTargets();
  for (let i = 0; i < 10_000; i++) former.add(claim(), given(`10.1.0.1 ${i}`), "default/web");
  expect([former.size, former.endpoints]).toEqual([1, 8]);
  expect(former.get(claim())?.endpoints?.has("10.1.0.1 9999")).toBe(true);
  expect(former.get(claim())?.endpoints?.has("10.1.0.1 1")).toBe(false);
});

test("repeated removals with the same endpoints count once", () => {
  const former = new FormerTargets();
  for (let i = 0; i < 100; i++) former.add(claim(), given("10.1.0.1 53", "10.1.0.2 53"));
  expect(former.endpoints).toBe(2);
});

test("the number of endpoints of all claims is limited; the oldest claims are forgotten first, and the last one stays", () => {
  const former = new FormerTargets(100, 10);
  for (let port = 1; port <= 50; port++) former.add(claim(port), given(`10.1.0.1 ${port}`, `10.1.0.2 ${port}`));
  expect([former.size, former.endpoints]).toEqual([5, 10]);
  expect(former.claims("ip").map(({ port }) => port)).toEqual([46, 47, 48, 49, 50]);
  former.add(claim(51), given(...Array.from({ length: 20 }, (_, i) => `10.1.0.3 ${i}`)));
  expect([former.size, former.endpoints]).toEqual([1, 20]);
});

test("each removal is forgotten after two passes that met none of its entries", () => {
  const former = new FormerTargets();
  former.add(claim(), given("10.1.0.1 53"));
  former.passed([claim()]);
  former.add(claim(), given("10.1.0.2 53"));
  const remembered = (): unknown[] => {
    const has = former.get(claim())?.endpoints;
    return ["10.1.0.1 53", "10.1.0.2 53"].filter((endpoint) => has?.has(endpoint));
  };
  expect(remembered()).toEqual(["10.1.0.1 53", "10.1.0.2 53"]);
  former.passed([claim()]);
  expect(remembered()).toEqual(["10.1.0.2 53"]);
  former.meet(entry("10.1.0.2", 53));
  former.passed([claim()]);
  former.passed([claim()]);
  expect(remembered()).toEqual(["10.1.0.2 53"]);
  former.passed([claim()]);
  expect([former.size, former.endpoints]).toEqual([0, 0]);
});

test("a removal with unknown endpoints matches any endpoint", () => {
  const former = new FormerTargets();
  former.add(claim(), given("10.1.0.1 53"));
  former.add(claim(), { cause: "found", endpoints: undefined });
  expect(former.get(claim())).toEqual({ cause: "found", endpoints: undefined });
  former.meet(entry("10.9.9.9", 1));
  former.passed([claim()]);
  former.passed([claim()]);
  expect(former.get(claim())?.endpoints).toBeUndefined();
  former.passed([claim()]);
  expect(former.size).toBe(0);
});

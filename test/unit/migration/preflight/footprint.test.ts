import { describe, expect, test } from "vitest";
import { checkFootprint, type ElementCount, footprintOf } from "../../../../src/migration/preflight/footprint.js";
import { objectFacts } from "../../../../src/migration/preflight/objects.js";
import { countElements } from "../../../../src/migration/preflight/trial.js";
import { newModel, service, slice } from "../../model/objects.js";
import { RULESET_OPTIONS } from "../../ruleset/ruleset-options.ts";

const ofSize = (services: number, each: number) => {
  const elements = services * (2 + each) + 16;
  const rules = new Map([["ip", { elements, counting: services }]] as const);
  return { services, endpoints: services * each, rules, cpus: 2 };
};

/** Measured with test/bench/beside.ts, and with `npm run bench -- memory` and `services`. */
describe("footprintOf is close to the measurements", () => {
  test.each([
    [1000, 10, 88, 2.3],
    [10_000, 10, 117, 19.9],
    [5000, 50, 122, 40.1],
    [20_000, 1, 140, 10.8],
  ])("%i services of %i endpoints: %d MB resident, %d in the kernel", (services, each, resident, kernel) => {
    const estimate = footprintOf(ofSize(services, each));
    expect(estimate.resident / 1e6 / resident).toBeCloseTo(1, 1);
    expect(Math.abs(estimate.kernel / 1e6 / kernel - 1)).toBeLessThan(0.2);
  });

  test.each([
    [10_000, 10, 617],
    [50_000, 10, 1821],
    [5000, 50, 724],
  ])("%i services of %i endpoints: loaded in %d ms", (services, each, ms) => {
    expect(footprintOf(ofSize(services, each)).loadMs / ms).toBeCloseTo(1, 1);
  });

  test("each CPU keeps its own counters", () => {
    const rules = new Map([["ip6", { elements: 4000, counting: 1000 }]] as const);
    const of = (cpus: number): number => footprintOf({ services: 1000, endpoints: 2000, rules, cpus }).kernel;
    expect(of(128) - of(2)).toBe(126 * 16 * 1000);
  });
});

test("the report names the estimate", () => {
  expect(checkFootprint(ofSize(10_000, 10))).toEqual([
    {
      level: "ok",
      what: "these services need about 118 MB of the process's memory and 20 MB in the kernel (120016 map elements); the first load takes about 0.6 s on the machine of docs/performance.md",
    },
  ]);
});

describe("countElements", () => {
  const count = async (spec: Record<string, unknown>, endpoints: readonly string[]): Promise<ElementCount> => {
    const { model } = newModel();
    model.upsertService(service("web", spec));
    model.upsertSlice(slice("web-1", "web", endpoints));
    const facts = objectFacts(model, ["ip"], { missing: [], ignored: [] });
    const services = "views" in facts ? (facts.views.get("ip") ?? new Map<string, never>()) : new Map<string, never>();
    return countElements({ family: "ip", options: RULESET_OPTIONS, services });
  };

  test("a VIP takes two elements and one for each endpoint, and so does a node port", async () => {
    const none = await count({}, ["10.1.0.1"]);
    expect(none.counting).toBe(1);
    expect((await count({}, ["10.1.0.1", "10.1.0.2", "10.1.0.3"])).elements - none.elements).toBe(2);
    const spec = { type: "NodePort", externalIPs: ["192.0.2.9"], ports: [{ port: 80, nodePort: 30080 }] };
    const ways = await count(spec, ["10.1.0.1"]);
    expect(ways.counting).toBe(3);
    expect(ways.elements - none.elements).toBeGreaterThanOrEqual(2 * 3);
  });
});

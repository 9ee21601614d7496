/** Services that cannot be expressed, changed options, and the owner of a rejected object. */
import { beforeEach, describe, expect, it } from "vitest";
import { EndpointList } from "../../../src/objects/endpoint-list.js";

import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { ServicePortView } from "../../../src/model/service-port-view.js";
import { FamilyRuleset } from "../../../src/ruleset/family-ruleset.js";
import { Table } from "../../../src/nft/engine-exports.js";
import { ownNames } from "../../../src/ruleset/names.js";
import { RULESET_OPTIONS } from "./ruleset-options.ts";
import { PLAIN_VIEW } from "../model/objects.ts";

const WEB: ServicePortView = {
  ...PLAIN_VIEW,
  service: "shop/web",
  clusterIP: "10.96.0.1",
  loadBalancerIPs: ["203.0.113.1"],
  sourceRanges: ["198.51.100.0/24"],
  affinitySeconds: 60,
  clusterEndpoints: EndpointList.of("ip", [{ address: "10.0.0.1", port: 8080, local: false }]),
};
/** The same without any objects of its own. */
const PLAIN: ServicePortView = { ...WEB, sourceRanges: undefined, affinitySeconds: 0 };

let table: Table;
let ruleset: FamilyRuleset;
beforeEach(() => {
  table = new Table(new FakeKernel(), { family: "ip", name: "kube-proxy" });
  ruleset = new FamilyRuleset(table, "ip", RULESET_OPTIONS);
});

/** Desired chains with their rules. */
function chains(): ReadonlyMap<string, string> {
  const found = table.render().matchAll(/\tchain (\S+) \{\n(.*?)\n\t\}/gs);
  return new Map([...found].map(([, name, rules]) => [name, rules]));
}

describe("a service that cannot be expressed", () => {
  // The first port is valid and differs from before; the second is invalid.
  const WRONG: readonly ServicePortView[] = [
    { ...WEB, affinitySeconds: 90 },
    { ...WEB, portName: "metrics", port: 81, sourceRanges: ["198.51.100.0/24", "fd00::/8"] },
  ];

  it.each<[string, readonly ServicePortView[]]>([
    ["that is new", []],
    ["with objects of its own", [WEB]],
    ["without", [PLAIN]],
  ])("%s changes nothing", async (_what, before) => {
    ruleset.update(WEB.service, before);
    await table.apply();
    const wanted = table.render();
    expect(() => ruleset.update(WEB.service, WRONG)).toThrow("value[1]: expected an IPv4 address");
    ruleset.collectUnused(0, 0);
    expect(table.render()).toBe(wanted);
    expect((await table.apply()).transactions).toBe(0);
  });
});

describe("options that change", () => {
  it("another mark is set wherever traffic is masqueraded", () => {
    ruleset.update("shop/plain", [
      { ...PLAIN, service: "shop/plain", clusterIP: "10.96.0.2", loadBalancerIPs: ["203.0.113.2"] },
    ]);
    ruleset.update(WEB.service, [WEB]);
    const marking = (mark: string): string[] =>
      [...chains()].filter(([, rules]) => rules.includes(mark)).map(([name]) => name);
    const before = marking("0x00004000");
    expect(before).toEqual(
      expect.arrayContaining([expect.stringMatching(/^masq-1-[0-9a-f]$/), expect.stringMatching(/^sticky-masq-/)]),
    );
    ruleset.setOptions({ ...RULESET_OPTIONS, masqueradeBit: 15 });
    expect(marking("0x00004000")).toEqual([]);
    expect(marking("0x00008000").toSorted()).toEqual(before.toSorted());
  });

  it("the node's IP in a source range also allows the load-balancer IPs themselves", () => {
    ruleset.update(WEB.service, [WEB]);
    const sources = (): string | undefined =>
      [...chains()].find(([name]) => /^source-ranges-[0-9a-f]{10}/.test(name))?.[1];
    expect(sources()).not.toContain("203.0.113.1");
    ruleset.setOptions({ ...RULESET_OPTIONS, nodeIP: "198.51.100.7" });
    expect(sources()).toContain("203.0.113.1");
    ruleset.setOptions({ ...RULESET_OPTIONS, nodeIP: "192.0.2.7" });
    expect(sources()).not.toContain("203.0.113.1");
  });
});

describe("refused objects", () => {
  it("belong to a service by name or by key, and shared ones to none", () => {
    ruleset.update(WEB.service, [WEB]);
    ruleset.update("shop/plain", [{ ...PLAIN, service: "shop/plain", clusterIP: "10.96.0.2" }]);
    const own = [...chains().keys()].filter((name) => /^(sticky|source)-.*-[0-9a-f]{10}/.test(name));
    expect(own.length).toBeGreaterThan(3);
    const fault = { errno: "ENOMEM", position: 1 } as const;
    const owners = ruleset.attribute([
      ...own.map((chain) => ({ kind: "chain", chain, ...fault }) as const),
      {
        kind: "set",
        set: ownNames(WEB).clients,
        ...fault,
      },
      { kind: "element", set: "services", key: Uint8Array.of(10, 96, 0, 2, 6, 0, 0, 0, 0, 80, 0, 0), ...fault },
      { kind: "chain", chain: "services", ...fault },
      { kind: "element", set: "services", key: Uint8Array.of(10, 96, 0, 9, 6, 0, 0, 0, 0, 80, 0, 0), ...fault },
    ]);
    expect(owners.map(({ service }) => service)).toEqual([
      ...own.map(() => "shop/web"),
      "shop/web",
      "shop/plain",
      undefined,
      undefined,
    ]);
    expect(owners.at(-1)?.what).toBe("element 10.96.0.9:80/TCP of services: ENOMEM");
  });

  it.each([
    ["services", [10, 96, 0, 9, 6, 0, 0, 0, 0, 80, 0, 0], "10.96.0.9:80/TCP"],
    ["endpoints-5", [10, 96, 0, 9, 17, 0, 0, 0, 0, 53, 0, 0, 1, 0, 0, 0], "10.96.0.9:53/UDP"],
    ["nodeports", [6, 0, 0, 0, 0x75, 0x30, 0, 0], "IPv4 node port 30000/TCP"],
    ["nodeport-endpoints", [6, 0, 0, 0, 0x75, 0x30, 0, 0, 1, 0, 0, 0], "IPv4 node port 30000/TCP"],
    ["nodeport-endpoints", [47, 0, 0, 0, 0x75, 0x30, 0, 0, 1, 0, 0, 0], "0x2f0000007530000001000000"],
  ])("are named by the address or node port of their key: %s", (set, key, name) => {
    const fault = { kind: "element", set, key: Uint8Array.from(key), errno: "ENOMEM", position: 1 } as const;
    expect(ruleset.attribute([fault])[0].what).toBe(`element ${name} of ${set}: ENOMEM`);
  });
});

describe("slots", () => {
  const pods = (count: number): EndpointList =>
    EndpointList.of(
      "ip",
      Array.from({ length: count }, (_, i) => ({ address: `10.0.0.${i + 1}`, port: 8080, local: false })),
    );
  const weighted = (count: number, weight: number): ServicePortView => {
    const list = pods(count);
    const balance = { by: "chance", slots: 256, weights: new Map([[list.id(0), weight]]) } as const;
    return { ...PLAIN, balance, clusterEndpoints: list };
  };
  const slotsOf = (...views: readonly ServicePortView[]): unknown[] => {
    ruleset.update("shop/web", views);
    return ruleset.state("shop/web").map(({ slots }) => slots);
  };

  it("are assigned again when endpoints or weights change, and not for another change or port", () => {
    const [first] = slotsOf(weighted(3, 2));
    const [same, port] = slotsOf(
      { ...weighted(3, 2), externalIPs: ["192.0.2.9"] },
      { ...weighted(3, 2), portName: "metrics", port: 81 },
    );
    expect(same).toBe(first);
    expect(port).toBe(first);
    expect(slotsOf(weighted(3, 3))[0]).not.toEqual(first);
    expect(slotsOf(weighted(4, 2))[0]).not.toEqual(first);
  });

  it("slots for consistent hashing are assigned in pieces, once for all ports with the same endpoints", () => {
    const consistent = (portName: string): ServicePortView => ({
      ...PLAIN,
      portName,
      balance: { by: "source-ip", slots: 0, weights: undefined },
      clusterEndpoints: pods(200),
    });
    const pauses = (views: readonly ServicePortView[]): number =>
      [...ruleset.updateInPieces("shop/web", views)].filter((weight) => weight === undefined).length;
    const one = pauses([consistent("")]);
    expect(one).toBeGreaterThan(2);
    const [first] = ruleset.state("shop/web");
    expect(pauses([consistent(""), { ...consistent("metrics"), port: 81 }])).toBe(0);
    expect(ruleset.state("shop/web").map(({ slots }) => slots)).toEqual([first.slots, first.slots]);
  });
});

describe("an update in pieces that was interrupted", () => {
  const endpoints = EndpointList.of(
    "ip",
    Array.from({ length: 20 }, (_, i) => ({ address: `10.0.0.${i + 1}`, port: 8080, local: false })),
  );
  /** Has enough endpoints to be written in more than one piece. */
  const MOVED: ServicePortView = {
    ...WEB,
    clusterIP: "10.96.0.2",
    sourceRanges: undefined,
    clusterEndpoints: endpoints,
  };

  it("continues from the newest version of a port, which keeps its affinity", () => {
    ruleset.update("shop/web", [PLAIN]);
    ruleset.updateInPieces("shop/web", [MOVED]).next();
    const interrupted = ruleset.state("shop/web").at(-1);
    expect(ruleset.state("shop/web").map(({ view }) => view.clusterIP)).toEqual(["10.96.0.1", "10.96.0.2"]);
    expect([...ruleset.updateInPieces("shop/web", [MOVED])].length).toBeGreaterThan(0);
    expect(ruleset.state("shop/web").map(({ view }) => view.clusterIP)).toEqual(["10.96.0.2"]);
    expect(ruleset.state("shop/web")[0].affinity).toEqual(interrupted?.affinity);
  });
});

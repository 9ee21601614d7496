/** Annotations nft-proxier.dev/balance…: their meaning, and the reports of invalid values. */
import { describe, expect, it } from "vitest";
import { weightsOf } from "../../../src/model/balance/endpoint-balance.js";
import { newModel, service, slice } from "../model/objects.ts";

function read(annotations: Record<string, unknown>, spec: Record<string, unknown> = {}) {
  const { model, problems, view } = newModel();
  model.upsertService(service("web", spec, { metadata: { annotations: prefixed(annotations) } }));
  return { balance: view("web").balance, problems };
}

function prefixed(annotations: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(annotations).map(([name, value]) => [`nft-proxier.dev/${name}`, value]));
}

const named = (name: string, reason: string): string =>
  `Service default/web metadata.annotations["nft-proxier.dev/${name}"]: ${reason}`;

/** A service with `count` endpoints, in slices of 1,000. */
function served(count: number, annotations: Record<string, string>) {
  const world = newModel();
  world.model.upsertService(service("web", {}, { metadata: { annotations: prefixed(annotations) } }));
  const put = (endpoints: number): void => {
    for (let from = 0; from < endpoints; from += 1000) {
      const pods = Array.from(
        { length: Math.min(1000, endpoints - from) },
        (_, i) => `10.1.${(from + i) >> 8}.${(from + i) & 255}`,
      );
      world.model.upsertSlice(slice(`web-${from}`, "web", pods));
    }
    world.model.takeDirty();
  };
  put(count);
  return { ...world, put };
}

describe("balance with too many endpoints", () => {
  it.each([
    [
      { balance: "consistent" },
      "balance",
      1024,
      "has more than the 1,024 endpoints that consistent hashing can spread",
    ],
    [{ weights: "10.1.0.0:0" }, "weights", 16_384, "has more than the 16,384 endpoints that weights can spread"],
  ] as const)("%j: is random, which is reported once, until there are fewer", (annotations, name, most, reason) => {
    const { model, problems, view, put } = served(most, annotations);
    expect(view("web").balance).toBeDefined();
    expect([...model.unbalanced()]).toEqual([]);
    put(most + 1);
    expect(view("web").clusterEndpoints.length).toBe(most + 1);
    expect(view("web").balance).toBeUndefined();
    const said = `${reason}; each connection goes to a random endpoint, all with the same probability`;
    expect(problems).toEqual([named(name, said)]);
    expect(Array.from(model.unbalanced(), ({ reason: found }) => found)).toEqual([said]);
    put(most + 2);
    expect(problems).toHaveLength(1);
    model.removeSlice(`default/web-${most - (most % 1000)}`);
    model.takeDirty();
    expect(view("web").balance).toBeDefined();
    expect([...model.unbalanced()]).toEqual([]);
  });

  it("keeps the weights if it is consistent", () => {
    const { model, view, put } = served(1024, { balance: "consistent", weights: "10.1.0.0:0" });
    expect(view("web").balance?.by).toBe("source-ip");
    put(1025);
    const { balance, clusterEndpoints } = view("web");
    expect(balance?.by).toBe("chance");
    expect(balance && weightsOf(clusterEndpoints, balance)?.slice(0, 2)).toEqual([0, 1]);
    const [{ reason }] = [...model.unbalanced()];
    expect(reason).toMatch(
      /^has more than the 1,024 endpoints .*; each connection goes to a random endpoint, by weight$/,
    );
  });

  it("is random if one service would have too many elements for all ports together, which is reported with the number", () => {
    const { model, problems } = newModel();
    const ports = Array.from({ length: 2_000 }, (_, i) => ({ name: `p${i}`, port: 20_000 + i }));
    const put = (count: number): void => {
      const metadata = { annotations: { "nft-proxier.dev/balance": "consistent" } };
      model.upsertService(service("web", { ports: ports.slice(0, count) }, { metadata }));
      model.upsertSlice({ ...slice("web-1", "web", ["10.1.0.1", "10.1.0.2"]), ports: ports.slice(0, count) });
      model.takeDirty();
    };
    put(64);
    expect(model.views("ip", "default/web")[0].balance).toBeDefined();
    put(2_000);
    expect(model.views("ip", "default/web").some(({ balance }) => balance !== undefined)).toBe(false);
    const said =
      "its ports and addresses would take 2,048,000 elements, more than the 65,536 that one service may have; " +
      "each connection goes to a random endpoint, all with the same probability";
    expect(problems).toEqual([named("balance", said)]);
  });

  it("is not reported if none is requested", () => {
    expect(served(16_385, {}).problems).toEqual([]);
  });
});

describe("the annotation balance", () => {
  it.each([
    [{}, undefined],
    [{ balance: "random" }, undefined],
    [{ balance: "consistent" }, { by: "source-ip", slots: 0 }],
    [{ weights: "zone=b:1" }, { by: "chance", slots: 0 }],
    [
      { balance: "consistent", weights: "zone=b:1" },
      { by: "source-ip", slots: 0 },
    ],
    [
      { balance: "consistent", "balance-key": "source-ip-port" },
      { by: "source-ip-port", slots: 0 },
    ],
    [
      { balance: "consistent", "balance-slots": "4096" },
      { by: "source-ip", slots: 4096 },
    ],
  ])("%j", (annotations, balance) => {
    expect(read(annotations)).toEqual({ balance, problems: [] });
  });

  it.each<[Record<string, unknown>, string, string]>([
    [{ balance: "maglev" }, "balance", '"maglev" is not one of random, consistent; using random'],
    [
      { weights: "zone=a" },
      "weights",
      '"zone=a" is not zone=NAME:WEIGHT or ADDRESS:WEIGHT with a weight of 0 to 1000; all endpoints get the same weight',
    ],
    [
      { weights: "zone=a:1,zone=b:1001" },
      "weights",
      '"zone=b:1001" is not zone=NAME:WEIGHT or ADDRESS:WEIGHT with a weight of 0 to 1000; all endpoints get the same weight',
    ],
    [
      { weights: "zone=:1" },
      "weights",
      '"zone=:1" has neither a zone nor an IP address; all endpoints get the same weight',
    ],
    [
      { weights: "web-0:1" },
      "weights",
      '"web-0:1" has neither a zone nor an IP address; all endpoints get the same weight',
    ],
    [
      { weights: "fd00::1:7" },
      "weights",
      '"fd00::1:7" is not [ADDRESS]:WEIGHT, the form for IPv6 addresses; all endpoints get the same weight',
    ],
    [
      { weights: "10.1.0.1:3, 10.1.0.1:0" },
      "weights",
      '"10.1.0.1:0" repeats a zone or address that already has a weight; all endpoints get the same weight',
    ],
    [
      { weights: "zone=a:3,zone=a:1" },
      "weights",
      '"zone=a:1" repeats a zone or address that already has a weight; all endpoints get the same weight',
    ],
    [{ "balance-key": "ip" }, "balance-key", '"ip" is not one of source-ip, source-ip-port; using source-ip'],
    [{ "balance-slots": "5" }, "balance-slots", '"5" is not one of 0, 256, 1024, 4096, 16384; using 0'],
    [{ weights: 3 }, "weights", "3 is not text (put it in quotes); all endpoints get the same weight"],
    [{ balance: true }, "balance", "true is not text (put it in quotes); using random"],
    [
      { balance: "consistent", "balance-key": "ip" },
      "balance-key",
      '"ip" is not one of source-ip, source-ip-port; using source-ip',
    ],
    [
      { balance: "consistent", "balance-slots": "251" },
      "balance-slots",
      '"251" is not one of 0, 256, 1024, 4096, 16384; using 0',
    ],
  ])("%j is reported and ignored", (annotations, name, reason) => {
    expect(read(annotations).problems).toEqual([named(name, reason)]);
  });

  it.each(["ip", "ip6"] as const)("gives %s endpoints weights by zone and by address, which has priority", (family) => {
    const { model, problems, view } = newModel();
    const v6 = family === "ip6";
    const address = (host: number): string => (v6 ? `fd00::${host}` : `10.1.0.${host}`);
    const annotations = prefixed({ weights: ` zone=a:3 ,zone=b:0, ${v6 ? "[fd00:0::3]" : "10.1.0.3"}:7` });
    model.upsertService(service("web", v6 ? { clusterIP: "fd00::1:1" } : {}, { metadata: { annotations } }));
    const zones = ["a", "b", "a", "c", undefined];
    const endpoints = zones.map((zone, i) => ({ addresses: [address(i + 1)], zone }));
    const rest = v6 ? { addressType: "IPv6" } : {};
    // Two slices, one of which names no zone.
    model.upsertSlice(slice("web-1", "web", endpoints.slice(0, 4), rest));
    model.upsertSlice(slice("web-2", "web", endpoints.slice(4), rest));
    const { balance, clusterEndpoints } = view("web", family);
    expect(problems).toEqual([]);
    expect(balance === undefined ? undefined : weightsOf(clusterEndpoints, balance)).toEqual([3, 0, 7, 1, 1]);
  });

  it("is ignored together with ClientIP affinity, which is reported", () => {
    const { balance, problems } = read({ balance: "consistent" }, { sessionAffinity: "ClientIP" });
    expect(balance).toBeUndefined();
    expect(problems).toEqual([
      named("balance", "is ignored, because sessionAffinity ClientIP already keeps each client at one endpoint"),
    ]);
  });

  it("is ignored together with ClientIP affinity and weights, and both are reported", () => {
    const { balance, problems } = read({ balance: "consistent", weights: "zone=a:3" }, { sessionAffinity: "ClientIP" });
    expect(balance).toBeUndefined();
    const why = "is ignored, because sessionAffinity ClientIP already keeps each client at one endpoint";
    expect(problems).toEqual([named("balance", why), named("weights", why)]);
  });
});

describe("an unknown Service annotation with our prefix", () => {
  it.each([
    ["max-conections", " (did you mean nft-proxier.dev/max-connections?)"],
    ["Balance", " (did you mean nft-proxier.dev/balance?)"],
    ["something-else-entirely", ""],
  ])("%s is reported", (name, hint) => {
    const { problems } = read({ [name]: "7" });
    expect(problems).toEqual([named(name, `is not a known annotation, and is ignored${hint}`)]);
  });
});

/** How `services` and the status page describe a service's annotations. */
import { expect, test } from "vitest";
import { servicesInPieces, describeService, type Listing } from "../../../../src/daemon/control/services.js";
import { rowOf } from "../../../../src/cli/text/service-row.js";
import { API_VERSION, type ServiceList, type ServicePortStatus } from "../../../../src/observe/status-report.js";
import { textOf } from "../../../../src/cli/commands/services.js";
import { newModel, service, slice } from "../../model/objects.js";

type Annotations = Readonly<Record<string, string>>;

function listing(of: Readonly<Record<string, Annotations>>, endpoints = ["10.1.0.1", "10.1.0.2"]): Listing {
  const { model } = newModel();
  for (const [i, [name, annotations]] of Object.entries(of).entries()) {
    const prefixed = Object.entries(annotations).map(([key, value]) => [`nft-proxier.dev/${key}`, value]);
    const spec = { clusterIP: `10.0.0.${i + 1}` };
    model.upsertService(service(name, spec, { metadata: { annotations: Object.fromEntries(prefixed) as object } }));
    model.upsertSlice(slice(`${name}-1`, name, endpoints));
  }
  model.takeDirty();
  return { model, families: ["ip"], states: { active: () => true, quarantineReason: () => undefined } };
}

const described = async (annotations: Annotations, endpoints?: string[]): Promise<ServicePortStatus> => {
  const { value } = (await describeService(listing({ web: annotations }, endpoints), "default/web").next()) as {
    readonly value: readonly ServicePortStatus[];
  };
  return value[0];
};

/** Lines of `services default/web` between the table and the endpoints. */
async function linesOf(item: ServicePortStatus): Promise<string[]> {
  const list: ServiceList = { apiVersion: API_VERSION, kind: "ServiceList", items: [item] };
  const text = await textOf(list, "table", true);
  return text.split("\n").filter((line) => line.startsWith("80/TCP IPv4"));
}

const ALL: Annotations = {
  balance: "consistent",
  weights: "zone=a:3, 10.1.0.2:0, [fd00::7]:2",
  "max-connections": "1000",
  "max-connections-per-client": "50",
  "rate-per-client": "10/second burst 20",
  "over-limit": "drop",
  "drain-seconds": "30",
};

test("services NS/NAME shows balance, weights, limits and drain as they are active", async () => {
  const item = await described(ALL);
  expect(item).toMatchObject({
    balance: { mode: "consistent", key: "source-ip", slots: 1024, weights: { zones: { a: 3 } } },
    limits: {
      ...{ maxConnections: 1000, maxConnectionsPerClient: 50, overLimit: "drop" },
      ratePerClient: { count: 10, per: "second", burst: 20 },
    },
    drainSeconds: 30,
  });
  // The other family's address is not among this family's endpoints.
  expect(item.balance?.weights?.addresses).toEqual({ "10.1.0.2": 0 });
  const limits = "max-connections-per-client 50, rate-per-client 10/second burst 20, over-limit drop";
  expect(await linesOf(item)).toEqual([
    "80/TCP IPv4: balance: consistent by source-ip, 1024 slots, weights zone=a:3 10.1.0.2:0 others:1",
    `80/TCP IPv4: limits: max-connections 1000, ${limits}`,
    "80/TCP IPv4: drain-seconds: 30",
    "80/TCP IPv4: endpoints",
  ]);
  const counted = await linesOf({ ...item, limits: { ...item.limits!, open: 37 } });
  expect(counted[1]).toBe(`80/TCP IPv4: limits: max-connections 1000 (37 open), ${limits}`);
});

test("a service without annotations shows none", async () => {
  const item = await described({});
  expect([item.balance, item.limits, item.drainSeconds]).toEqual([undefined, undefined, undefined]);
  expect(await linesOf(item)).toEqual(["80/TCP IPv4: endpoints"]);
});

test("a rejected value is not shown, but the one in effect is", async () => {
  const item = await described({
    "balance-slots": "7",
    balance: "consistent",
    "max-connections": "many",
    "over-limit": "drop",
  });
  expect(item).toMatchObject({ balance: { slots: 1024 } });
  expect(item.limits).toMatchObject({ maxConnections: 1, overLimit: "drop" });
});

test("a balance that is impossible with this many endpoints is not applied", async () => {
  const many = Array.from({ length: 16_385 }, (_, i) => `10.${1 + (i >> 16)}.${(i >> 8) & 255}.${i & 255}`);
  expect((await described({ balance: "consistent" }, many)).balance).toBeUndefined();
});

test("-o wide has a word for each kind of active annotation", async () => {
  const names = { all: ALL, heavy: { weights: "10.1.0.1:3" }, plain: {} };
  const items: ServicePortStatus[] = [];
  for await (const piece of servicesInPieces(listing(names), false)) items.push(...piece);
  expect(items.map((item) => rowOf(item, true).at(-2))).toEqual(["consistent,weights,limits,drain", "weights", "-"]);
  const list: ServiceList = { apiVersion: API_VERSION, kind: "ServiceList", items };
  expect((await textOf(list, "wide", true)).split("\n")[0]).toMatch(/ STATE +ANNOTATIONS +REASON$/);
  expect(items.map((item) => rowOf(item, false).length)).toEqual([9, 9, 9]);
});

test("source ranges are shown, with those of other services that claim an address", async () => {
  const item = await described({});
  const guarded = {
    ...item,
    sourceRanges: [],
    otherSourceRanges: [{ address: "192.0.2.9", sourceRanges: ["10.0.0.0/8"] }],
  };
  expect((await linesOf(guarded))[0]).toBe(
    "80/TCP IPv4: loadBalancerSourceRanges: none, so no client is allowed; for 192.0.2.9 also those of another service: 10.0.0.0/8",
  );
});

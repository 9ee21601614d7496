/** How `services` and the status page describe a service's annotations. */
import { expect, test } from "vitest";
import { servicesInPieces, describeService, type Listing } from "../../../../src/daemon/answers/listed-services.js";
import { describeLines, SERVICE_COLUMNS } from "../../../../src/cli/text/service-text.js";
import { tableLines } from "../../../../src/cli/text/text-table.js";
import type { ServicePortStatus } from "../../../../src/observe/status-report.js";
import { newModel, service, slice } from "../../model/objects.js";

/** A table for a pipe. */
const PIPE = { headers: true, width: undefined };

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

/** The facts of `services default/web` that annotations and source ranges add. */
function factsOf(item: ServicePortStatus): string[] {
  const facts = describeLines([item], PIPE).map((line) => line.trim().replace(/ {2,}/, ": "));
  return facts.filter((line) => /^(?:balance|limits|drain-seconds|loadBalancerSourceRanges): /.test(line));
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
  expect(factsOf(item)).toEqual([
    "balance: consistent by source-ip, 1024 slots, weights zone=a:3 10.1.0.2:0 others:1",
    `limits: max-connections 1000, ${limits}`,
    "drain-seconds: 30",
  ]);
  const counted = factsOf({ ...item, limits: { ...item.limits!, open: 37 } });
  expect(counted[1]).toBe(`limits: max-connections 1000 (37 open), ${limits}`);
});

test("a service without annotations shows none", async () => {
  const item = await described({});
  expect([item.balance, item.limits, item.drainSeconds]).toEqual([undefined, undefined, undefined]);
  expect(factsOf(item)).toEqual([]);
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
  const [titles, ...rows] = tableLines(SERVICE_COLUMNS, items, { ...PIPE, wide: true });
  expect(titles).toMatch(/ STATE +ANNOTATIONS +REASON$/);
  expect(rows.map((row) => row.split(/ {2,}/).at(-2))).toEqual(["consistent,weights,limits,drain", "weights", "-"]);
  expect(tableLines(SERVICE_COLUMNS, items, PIPE)[0]).not.toContain("ANNOTATIONS");
});

test("source ranges are shown, with those of other services that claim an address", async () => {
  const item = await described({});
  const guarded = {
    ...item,
    sourceRanges: [],
    otherSourceRanges: [{ address: "192.0.2.9", sourceRanges: ["10.0.0.0/8"] }],
  };
  expect(factsOf(guarded)[0]).toBe(
    "loadBalancerSourceRanges: none, so no client is allowed; for 192.0.2.9 also those of another service: 10.0.0.0/8",
  );
});

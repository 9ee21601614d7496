/** A service's annotations in the answers for `services` and the status page. */
import { expect, test } from "vitest";
import { describeService } from "../../../../src/daemon/answers/listed-services.js";
import type { ServicePortStatus } from "../../../../src/observe/status-report.js";
import { newModel, service, slice } from "../../model/objects.js";

type Annotations = Readonly<Record<string, string>>;

async function described(annotations: Annotations, endpoints = ["10.1.0.1", "10.1.0.2"]): Promise<ServicePortStatus> {
  const { model } = newModel();
  const prefixed = Object.entries(annotations).map(([key, value]) => [`nft-proxier.dev/${key}`, value]);
  model.upsertService(service("web", {}, { metadata: { annotations: Object.fromEntries(prefixed) as object } }));
  model.upsertSlice(slice("web-1", "web", endpoints));
  model.takeDirty();
  const states = { active: () => true, quarantineReason: () => undefined };
  const { value } = (await describeService({ model, families: ["ip"], states }, "default/web").next()) as {
    readonly value: readonly ServicePortStatus[];
  };
  return value[0];
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

test("the answer has balance, weights, limits and drain as they are active", async () => {
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
});

test("a service without annotations has none", async () => {
  const item = await described({});
  expect([item.balance, item.limits, item.drainSeconds]).toEqual([undefined, undefined, undefined]);
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

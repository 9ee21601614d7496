/** The table of cases (test/unit/conntrack/cases.ts) on the kernel: the test creates the entries there and checks which are left. */
import { afterAll, beforeAll, expect, test } from "vitest";

import { DELETED } from "../../src/conntrack/reconcile/stale-entries.ts";
import { NetlinkConntrack } from "../../src/nft/conntrack/netlink-conntrack.ts";
import { Reconciler } from "../../src/conntrack/reconcile/reconciler.ts";
import { Namespace } from "../lab/namespace.ts";
import { CASES, entryOf } from "../unit/conntrack/cases.ts";
import { FAMILIES, nodePortAddresses, worldWithFormer } from "../unit/conntrack/setup.ts";
import { SILENT } from "../support/log.ts";

let namespace: Namespace;
let table: NetlinkConntrack;
beforeAll(async () => {
  namespace = await Namespace.create(`${process.pid}-cases`);
  table = await NetlinkConntrack.open({ netns: `/run/netns/${namespace.name}` });
});
afterAll(async () => {
  await table.close();
  await namespace.destroy();
});

async function fill(): Promise<void> {
  await table.deleteMatching({});
  for (const family of FAMILIES) {
    for (const [n, one] of CASES.entries()) await table.create(entryOf(one, family, n));
  }
}

/** Names of the cases whose entries exist, in order. */
async function left(): Promise<string[]> {
  const found: number[] = [];
  await table.dump({}, (entries) => {
    for (const { family, original } of entries) {
      found.push(FAMILIES.indexOf(family) * CASES.length + original.sourcePort - 20_000);
    }
  });
  found.sort((a, b) => a - b);
  return found.map((n) => `${FAMILIES[Math.floor(n / CASES.length)]}: ${CASES[n % CASES.length].name}`);
}

const KEPT = FAMILIES.flatMap((family) =>
  CASES.filter((one) => !(DELETED as readonly string[]).includes(one.expect)).map(({ name }) => `${family}: ${name}`),
);

function reconciler() {
  const { model, former } = worldWithFormer();
  const one = new Reconciler({
    table,
    model,
    former,
    nodePortAddresses: (family) => Promise.resolve(nodePortAddresses(family)),
    log: SILENT,
    settleMs: 60_000,
  });
  return { one, model, former };
}

test("a full pass leaves only the entries that the decision keeps", async () => {
  await fill();
  const { one } = reconciler();
  for (const family of FAMILIES) one.requestAll(family);
  await one.idle();
  await one.stop();
  expect(await left()).toEqual(KEPT);
});

test("passes over one service, one former address after the other and filtered in the kernel, do the same", async () => {
  await fill();
  const { one, model, former } = reconciler();
  for (const family of FAMILIES) {
    for (const service of model.services()) {
      one.request(family, [service], []);
      await one.idle();
    }
    for (const claim of former.claims(family)) {
      one.request(family, [], [claim]);
      await one.idle();
    }
  }
  await one.stop();
  expect(await left()).toEqual(KEPT);
});

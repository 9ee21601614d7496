/** Deleted conntrack entries and the reasons: the whole table of cases. */
import { describe, expect, test } from "vitest";
import { decide, DELETED, KEPT } from "../../../src/conntrack/reconcile/stale-entries.js";
import { ServiceKnowledge } from "../../../src/conntrack/reconcile/service-knowledge.js";
import { PrefilterBuilder } from "../../../src/conntrack/reconcile/prefilter.js";
import { maySkip } from "../../support/may-skip.ts";
import type { ConntrackEntry } from "../../../src/nft/conntrack/conntrack-table.js";
import type { IpFamily } from "../../../src/base/ip.js";
import { CASES, entryOf } from "./cases.js";
import { FAMILIES, nodePortAddresses, worldWithFormer } from "./setup.js";

function shown(family: IpFamily, n: number): ConntrackEntry {
  return { id: n, status: 0, mark: 0, zone: 0, ...entryOf(CASES[n], family, n) };
}

const { model, former } = worldWithFormer();
const knowledge = (family: IpFamily) => new ServiceKnowledge(model, former, family, nodePortAddresses(family));

describe.each(FAMILIES)("%s", (family) => {
  const known = knowledge(family);
  test.each(CASES.map((one, n) => [one.name, one.expect, n] as const))("%s: %s", (_name, reason, n) => {
    expect(decide(shown(family, n), known).reason).toBe(reason);
  });

  test("the prefilter of a full pass skips no entry that must be deleted, and most of the others", () => {
    const prefilter = prefilterOf(family);
    const skipped = CASES.map((_one, n) => maySkip(prefilter, shown(family, n)));
    const decisions = CASES.map((_one, n) => decide(shown(family, n), known));
    expect(CASES.filter((_one, n) => skipped[n] && decisions[n].action === "delete")).toEqual([]);
    const inOrder = CASES.filter((_one, n) => ["endpoint-serves", "not-ours"].includes(decisions[n].reason));
    expect(inOrder.filter((one) => !skipped[CASES.indexOf(one)])).toEqual([]);
  });
});

function prefilterOf(family: IpFamily) {
  const prefilter = new PrefilterBuilder(family, nodePortAddresses(family));
  for (const service of model.services())
    for (const target of model.targets(family, service)) prefilter.addTarget(target);
  for (const claim of former.claims(family)) prefilter.addFormer(claim);
  return prefilter.build();
}

test("node ports also answer in whole networks: those of loopback", () => {
  const at = (places: readonly string[]) => new ServiceKnowledge(model, former, "ip", places);
  const wide = at(["192.0.2.10", "127.0.0.0/8"]);
  expect(["192.0.2.10", "127.0.0.1", "127.200.0.1", "192.0.2.9"].map((one) => wide.isNodePortAddress(one))).toEqual([
    true,
    true,
    true,
    false,
  ]);
  expect(at(wide.nodePortAddresses).isNodePortAddress("127.0.0.9")).toBe(true);
  expect(wide.prefilterAddresses).toEqual(["0.0.0.0"]);
  expect(at(["192.0.2.10", "127.0.0.1/32"]).prefilterAddresses).toEqual(["192.0.2.10", "127.0.0.1"]);
});

test("the cases cover every reason", () => {
  const reasons = new Set(CASES.map((one) => one.expect));
  const never = [...KEPT, ...DELETED].filter((reason) => !reasons.has(reason));
  expect(never).toEqual(["other-protocol"]);
});

test.each(["original", "reply"] as const)(
  "an entry without translation stays if only its %s direction is in a zone",
  (direction) => {
    const n = CASES.findIndex((one) => one.expect === "not-translated");
    const entry = shown("ip", n);
    const zoned = { ...entry, [direction]: { ...entry[direction], zone: 7 } };
    expect(decide(zoned, knowledge("ip")).reason).toBe("other-zone");
  },
);

test("an entry that is neither TCP, UDP nor SCTP stays", () => {
  const ping = shown("ip", 0);
  const entry = { ...ping, original: { ...ping.original, protocol: 1, sourcePort: 0, destinationPort: 0 } };
  expect(decide(entry, knowledge("ip")).reason).toBe("other-protocol");
});

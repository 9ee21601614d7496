/** Which entries of the connection tracking table go, and why: the whole table of cases, with every switch. */
import { describe, expect, test } from "vitest";
import { decide, DELETED, KEPT, type Switches } from "../../../src/conntrack/decide.js";
import { ServiceKnowledge } from "../../../src/conntrack/knowledge.js";
import { mayLeaveOut, ScreenBuilder } from "../../../src/conntrack/screen.js";
import type { ConntrackEntry } from "../../../src/conntrack/types.js";
import type { IpFamily } from "../../../src/model/types.js";
import { CASES, entryOf, expectedOf, SWITCH_SETTINGS } from "./cases.js";
import { FAMILIES, nodePortAddresses, worldWithFormer } from "./world.js";

function shown(family: IpFamily, n: number): ConntrackEntry {
  return { id: n, status: 0, mark: 0, zone: 0, ...entryOf(CASES[n], family, n) };
}

const { model, former } = worldWithFormer();
const knowledge = (family: IpFamily) => new ServiceKnowledge(model, former, family, nodePortAddresses(family));

describe.each(FAMILIES)("%s", (family) => {
  const known = knowledge(family);
  describe.each(SWITCH_SETTINGS)("%s", (_, switches) => {
    test.each(CASES.map((one, n) => [one.name, expectedOf(one, switches), n] as const))(
      "%s: %s",
      (_name, reason, n) => {
        expect(decide(shown(family, n), known, switches).reason).toBe(reason);
      },
    );

    test("the screen of a pass over everything leaves out nothing that has to go, and most of what may stay", () => {
      const screen = screenOf(family, switches);
      const leftOut = CASES.map((_one, n) => mayLeaveOut(screen, shown(family, n)));
      const decisions = CASES.map((_one, n) => decide(shown(family, n), known, switches));
      expect(CASES.filter((_one, n) => leftOut[n] && decisions[n].action === "delete")).toEqual([]);
      const inOrder = CASES.filter((_one, n) => ["endpoint-serves", "not-ours"].includes(decisions[n].reason));
      expect(inOrder.filter((one) => !leftOut[CASES.indexOf(one)])).toEqual([]);
    });
  });
});

function screenOf(family: IpFamily, switches: Switches) {
  const screen = new ScreenBuilder(family, switches, nodePortAddresses(family));
  for (const service of model.services()) for (const target of model.targets(family, service)) screen.addTarget(target);
  for (const claim of former.claims(family)) screen.addFormer(claim);
  return screen.build();
}

test("the cases show every reason there is", () => {
  const reasons = new Set(SWITCH_SETTINGS.flatMap(([, switches]) => CASES.map((one) => expectedOf(one, switches))));
  const never = [...KEPT, ...DELETED].filter((reason) => !reasons.has(reason));
  expect(never).toEqual(["other-protocol"]);
});

test("what is neither TCP, UDP nor SCTP stays", () => {
  const ping = shown("ip", 0);
  const entry = { ...ping, original: { ...ping.original, protocol: 1, sourcePort: 0, destinationPort: 0 } };
  for (const [, switches] of SWITCH_SETTINGS)
    expect(decide(entry, knowledge("ip"), switches).reason).toBe("other-protocol");
});

import { expect, test } from "vitest";
import { DaemonServices } from "../../../src/cli/commands/conntrack/daemon-services.js";
import { decide } from "../../../src/conntrack/reconcile/stale-entries.js";
import { ServiceKnowledge, type TargetSource } from "../../../src/conntrack/reconcile/service-knowledge.js";
import type { ConntrackEntry } from "../../../src/nft/conntrack/conntrack-table.js";
import { servicesInPieces } from "../../../src/daemon/answers/listed-services.js";
import type { ServicePortStatus } from "../../../src/observe/status-report.js";
import { CASES, entryOf } from "../conntrack/cases.ts";
import { FAMILIES, nodePortAddresses, worldWithFormer } from "../conntrack/setup.ts";

test("the daemon's data on its services decides on entries as its model does", async () => {
  const { model, former } = worldWithFormer();
  const states = { active: () => true, quarantineReason: () => undefined };
  const items: ServicePortStatus[] = [];
  for await (const some of servicesInPieces({ model, families: FAMILIES, states }, true)) items.push(...some);
  const told = new DaemonServices(JSON.parse(JSON.stringify(items)) as ServicePortStatus[]);
  expect([...told.services()].toSorted()).toEqual([...model.services()].toSorted());
  for (const family of FAMILIES) {
    const addresses = nodePortAddresses(family);
    const by = (source: TargetSource) => new ServiceKnowledge(source, former, family, addresses);
    for (const [n, one] of CASES.entries()) {
      const entry: ConntrackEntry = { id: n, status: 0, mark: 0, zone: 0, ...entryOf(one, family, n) };
      expect([one.name, decide(entry, by(told))]).toEqual([one.name, decide(entry, by(model))]);
    }
    const sought = new Set(
      [...model.targets(family, "default/dns")].flatMap(({ endpoints, protocol }) =>
        endpoints.map(({ address, port }) => `${address} ${port} ${protocol}`),
      ),
    );
    expect(told.endpointsAmong(family, new Set([...sought, "192.0.2.1 1 TCP"]))).toEqual(sought);
  }
});

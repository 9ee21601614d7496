/** The memory of the reports about changes while the kernel rejects every write. */
import { expect, test } from "vitest";
import { SILENT } from "../../support/log.ts";
import type { FamilyOutcome } from "../../../src/proxier/family-proxier.ts";
import type { SyncReport } from "../../../src/proxier/observer.ts";
import { SyncReports } from "../../../src/proxier/sync-reports.ts";

const REFUSED: FamilyOutcome = { ok: false, error: new Error("refused") };
const WRITTEN = {
  ...{ ok: true, repairPending: false, quarantined: [] },
  result: { transactions: 1, total: 1, bytes: 1, kernelNs: 1 },
} as unknown as FamilyOutcome;

test("a service that changes repeatedly is remembered once, and the oldest 65,536 trigger times are kept", () => {
  const told: SyncReport[] = [];
  const observers = [{ synced: (report: SyncReport) => void told.push(report) }];
  const reports = new SyncReports({ log: SILENT, clock: { now: () => 0 }, observers });
  for (let change = 0; change < 100_000; change++) {
    reports.underWay("ip", [change], ["default/web"]);
    if (change % 1000 === 0) reports.report("ip", 0, 0, REFUSED);
  }
  reports.underWay("ip", [], ["default/other"]);
  reports.report("ip", 0, 0, WRITTEN);
  const last = told.at(-1);
  expect(last?.services).toEqual(["default/web", "default/other"]);
  expect([last?.triggers.length, last?.triggers[0], last?.triggers.at(-1)]).toEqual([65_536, 0, 65_535]);
});

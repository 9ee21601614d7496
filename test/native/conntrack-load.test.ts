import { expect, test } from "vitest";
import { buildHelper } from "../lab/build.js";
import { patience } from "../lab/patience.js";
import { child } from "./lab.js";
import { atLength } from "../lab/length.ts";

interface Timed {
  readonly ms: number;
  readonly deleted: number;
}

interface Measured {
  readonly entries: number;
  readonly counted: number;
  readonly vips: number;
  readonly grown: number;
  readonly passes: readonly {
    readonly bareMs: number;
    readonly passMs: number;
    readonly groupedMs: number;
    readonly groups: number;
    readonly blockedMs: number;
  }[];
  readonly matching: Timed;
  readonly listed: Timed;
  readonly prefix: Timed;
  readonly left: number;
  readonly flushed: Timed;
}

/** Under AddressSanitizer, memory and time are not the addon's own. */
const sanitized = process.env["NFT_PROXIER_ADDON"] !== undefined;
const ENTRIES = sanitized ? 20_000 : atLength({ short: 20_000, usual: 200_000 });
const ROUNDS = atLength({ short: 3, usual: 5 });

test("many entries: a full pass takes as long as a bare dump and at most 20 MB, and deletes one VIP's entries at once", async () => {
  const args = [buildHelper("conntrack"), String(ENTRIES), String(ROUNDS)];
  const measured = (await child("conntrack-load.mjs", args, ["unshare", "--net"])) as Measured;
  const { entries, counted, vips, grown, passes } = measured;
  // A machine with a smaller table fills that.
  expect(entries).toBeGreaterThan(Math.min(ENTRIES, 60_000) - 1);
  expect(counted).toBe(entries);
  expect(vips).toBe(Math.ceil(entries / 100));
  for (const { groups } of passes) expect(groups).toBe(vips);
  expect(measured.matching).toMatchObject({ deleted: 100, absent: 0, interrupted: false });
  expect(measured.listed).toMatchObject({ deleted: 100, absent: 0, interrupted: false });
  expect(measured.prefix).toMatchObject({ deleted: 100, absent: 0, interrupted: false });
  expect(measured.left).toBe(entries - 300);
  expect(measured.flushed.deleted).toBe(entries - 300);
  if (sanitized) return;
  expect(grown).toBeLessThan(20 * 2 ** 20);
  // A slow guest has one processor for both threads, and the reference does not need a second one.
  if (patience(1) > 1) return;
  // Uses the best round of each, because the machine may be busy. `npm run bench` reports the actual ratio.
  const best = (of: (pass: Measured["passes"][number]) => number): number => Math.min(...passes.map(of));
  expect(best(({ groupedMs }) => groupedMs) / best(({ bareMs }) => bareMs)).toBeLessThan(2);
  expect(best(({ blockedMs }) => blockedMs)).toBeLessThan(20);
  // Far less than one dump for each of the 100 deleted entries.
  expect(measured.matching.ms / best(({ bareMs }) => bareMs)).toBeLessThan(50);
});

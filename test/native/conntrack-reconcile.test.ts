import { expect, test } from "vitest";
import { buildHelper } from "../lab/build.js";
import { patience } from "../lab/patience.js";
import { child } from "./lab.js";
import { atLength } from "../lab/length.ts";

interface Measured {
  readonly entries: number;
  readonly touched: number;
  readonly grown: number;
  readonly passes: readonly { readonly bareMs: number; readonly passMs: number; readonly blockedMs: number }[];
  readonly one: { readonly ms: number; readonly mode: string; readonly deleted: number };
  readonly left: number;
}

/** Under AddressSanitizer, memory and time are not the addon's own. */
const sanitized = process.env["NFT_PROXIER_ADDON"] !== undefined;
const ENTRIES = sanitized ? 20_000 : atLength({ short: 20_000, usual: 200_000 });
const ROUNDS = atLength({ short: 3, usual: 5 });

test("many entries in order: a pass takes little longer than a bare dump, and one VIP's stale entries are deleted at once", async () => {
  const args = [buildHelper("conntrack"), String(ENTRIES), String(ROUNDS)];
  const measured = (await child("conntrack-reconcile.mjs", args, ["unshare", "--net"])) as Measured;
  const { entries, touched, grown, passes, one, left } = measured;
  expect(entries).toBeGreaterThan(Math.min(ENTRIES, 60_000) - 1);
  expect(touched).toBe(0);
  expect(one).toMatchObject({ mode: "few", deleted: 100 });
  expect(left).toBe(entries - 100);
  if (sanitized) return;
  expect(grown).toBeLessThan(20 * 2 ** 20);
  // A slow guest has one processor for both threads, and the reference does not need a second one.
  if (patience(1) > 1) return;
  // Uses the best round of each, because the machine may be busy. `npm run bench` reports the actual ratio.
  const best = (of: (pass: Measured["passes"][number]) => number): number => Math.min(...passes.map(of));
  expect(best(({ passMs }) => passMs) / best(({ bareMs }) => bareMs)).toBeLessThan(2);
  expect(best(({ blockedMs }) => blockedMs)).toBeLessThan(20);
  // Far less than one dump for each of the 100 deleted entries.
  expect(one.ms / best(({ bareMs }) => bareMs)).toBeLessThan(50);
});

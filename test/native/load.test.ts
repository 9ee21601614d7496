import { expect, test } from "vitest";
import { child } from "./lab.js";

interface Measured {
  readonly grown: number;
  readonly blockedMs: number;
  readonly dumped: number;
  readonly dumpBlockedMs: number;
}

/** Under AddressSanitizer memory and time are not the addon's own. */
const sanitized = process.env["NFT_PROXIER_ADDON"] !== undefined;
const MEMORY = sanitized ? 4 : 1.2;
const BLOCKED_MS = sanitized ? 500 : 20;

test("half a million elements: at most 1.2 times their bytes of memory, never 20 ms of the event loop", async () => {
  const { bytes, rounds } = (await child("memory.mjs", [], ["unshare", "--net"])) as {
    readonly bytes: number;
    readonly rounds: readonly Measured[];
  };
  expect(bytes).toBeGreaterThan(10_000_000);
  for (const { grown, dumped } of rounds) {
    expect(dumped).toBe(500_000);
    expect(grown / bytes).toBeGreaterThan(0.5);
    expect(grown / bytes).toBeLessThan(MEMORY);
  }
  expect(Math.min(...rounds.map(({ blockedMs }) => blockedMs))).toBeLessThan(BLOCKED_MS);
  expect(Math.min(...rounds.map(({ dumpBlockedMs }) => dumpBlockedMs))).toBeLessThan(BLOCKED_MS);
});

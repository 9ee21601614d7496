import { expect, test } from "vitest";
import { child } from "./lab.js";

interface Measured {
  /** The send buffer is too small for everything: rejected before encoding. */
  readonly refused: boolean;
  readonly grown: number;
  readonly held: number;
  readonly dumped: number;
  readonly dumpHeld: number;
}

/** Under AddressSanitizer, memory and time are not the addon's own. */
const sanitized = process.env["NFT_PROXIER_ADDON"] !== undefined;
const MEMORY = sanitized ? 4 : 1.2;
const HELD = sanitized ? 0.5 : 0.2;

test("an operation with 50,000 distinct verdicts is read in slices", async () => {
  const rounds = (await child("verdicts.mjs")) as readonly {
    readonly slices: number;
    readonly longest: number;
    readonly all: number;
  }[];
  // It takes at least 55 ms, a slice 2 ms.
  expect(Math.min(...rounds.map(({ slices }) => slices))).toBeGreaterThan(7);
  expect(Math.min(...rounds.map(({ longest, all }) => longest / all))).toBeLessThan(0.4);
});

test("half a million elements take at most 1.2 times their bytes of memory, and never block the event loop for a fifth of the work", async () => {
  const { bytes, rounds } = (await child("memory.mjs", [String(HELD)], ["unshare", "--net"])) as {
    readonly bytes: number;
    readonly rounds: readonly Measured[];
  };
  expect(bytes).toBeGreaterThan(10_000_000);
  for (const { grown, dumped } of rounds) {
    expect(dumped).toBe(500_000);
    expect(grown / bytes).toBeLessThan(MEMORY);
  }
  // Memory of an earlier round may be freed while a later one is measured.
  const [{ refused, grown }] = rounds;
  expect(grown / bytes).toBeGreaterThan(refused ? 0.2 : 0.5);
  expect(Math.min(...rounds.map(({ held }) => held))).toBeLessThan(HELD);
  expect(Math.min(...rounds.map(({ dumpHeld }) => dumpHeld))).toBeLessThan(HELD);
});

/**
 * No input from JS and no datagram from a socket crashes the process: it is accepted, or rejected with one of our
 * errors. FUZZ_SEED repeats a run.
 */
import { expect, test } from "vitest";
import { FUZZ_SEED } from "../support/fuzz-seed.ts";
import { SetFlag } from "../../src/nft/kernel/constants.js";
import { KernelError } from "../../src/nft/kernel/errors.js";
import type { Op } from "../../src/nft/kernel/kernel.js";
import { errorReply, fuzzedOps, mutate, Random, Sabotage, validOps } from "./fuzz.js";
import { addresses, useLab } from "./lab.js";
import { testAddon as addon } from "./test-addon.js";
import { atLength } from "../lab/length.ts";

const INPUTS = atLength({ short: 15_000, usual: 100_000, nightly: 1_000_000 });
const TIMEOUT_MS = 3_600_000;
console.log(`fuzz: FUZZ_SEED=${FUZZ_SEED}, ${INPUTS} inputs`);

const lab = useLab();

/** Lets the event loop turn from time to time, so that vitest sees the worker alive. */
async function many(count: number, offset: number, input: (random: Random, index: number) => void): Promise<void> {
  for (let i = 0; i < count; i++) {
    // Each input has its own seed, so it can be reproduced without the previous ones.
    const own = (FUZZ_SEED + offset + i * 4) >>> 0;
    try {
      input(new Random(own), i);
    } catch (error) {
      throw new Error(`input ${i}, seed ${own}`, { cause: error });
    }
    if (i % 1000 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Returns the result, or undefined if the addon rejected the call with one of `codes` or a getter threw. */
function attempt<T>(call: () => T, codes: readonly string[]): T | undefined {
  try {
    return call();
  } catch (error) {
    if (error instanceof Sabotage) return undefined;
    const { code } = error as { code?: string };
    if (error instanceof Error && code !== undefined && codes.includes(code)) return undefined;
    throw error;
  }
}

test(
  "operations",
  async () => {
    let taken = 0;
    await many(INPUTS * 0.4, 0, (random) => {
      const ops = fuzzedOps(random);
      const bytes = attempt(() => addon.encodeBatch(ops), ["invalid"]);
      if (bytes === undefined) return;
      taken++;
      // Accepted input is well formed.
      expect(addon.decodeMessages(bytes).at(-1)?.kind).toBe("end");
    });
    // Neither everything nor nothing is accepted: the fuzzer is neither too wild nor too tame.
    expect(taken).toBeGreaterThan(INPUTS * 0.02);
    expect(taken).toBeLessThan(INPUTS * 0.38);
  },
  TIMEOUT_MS,
);

test(
  "messages",
  async () => {
    let decoded = 0;
    await many(INPUTS * 0.3, 1, (random) => {
      const bytes = mutate(addon.encodeBatch(validOps(random)).subarray(0, 4096), random);
      if (attempt(() => addon.decodeMessages(bytes), ["system"]) !== undefined) decoded++;
    });
    expect(decoded).toBeGreaterThan(0);
    expect(decoded).toBeLessThan(INPUTS * 0.3);
  },
  TIMEOUT_MS,
);

test(
  "dumps of elements",
  async () => {
    const full = ["invalid", "system"];
    await many(INPUTS * 0.15, 2, (random) => {
      const ops = validOps(random).filter(({ kind, op }) => kind === "elements" && op !== "flush");
      const { length } = ops;
      const batch = addon.encodeBatch(ops).subarray(0, 2048);
      const bytes = length === 0 || random.chance(2) ? mutate(batch, random) : batch;
      const info = addresses("s", {
        flags: random.pick([0, SetFlag.interval, SetFlag.timeout, SetFlag.map]),
        keyLen: random.pick([4, 4, 4, 1, 64]),
        ...(random.chance(2) && { dataType: random.pick([7, 0xffffff00]), dataLen: random.pick([4, 0, 64]) }),
      });
      attempt(() => addon.decodeElements(info, bytes), full);
    });
  },
  TIMEOUT_MS,
);

test(
  "error replies",
  async () => {
    const random = new Random(FUZZ_SEED);
    const ops: readonly Op[] = Array.from({ length: 5 }, () => validOps(random)).flat();
    let found = 0;
    await many(INPUTS * 0.15, 3, (own) => {
      const reply = errorReply(own.below(ops.length + 4), own.below(3000), own.pick([-2, -17, 0, 5, -(2 ** 31)]));
      const bytes = own.chance(2) ? mutate(reply, own) : reply;
      const error = attempt(() => addon.faultsOf(ops, bytes), ["system"]);
      for (const { op } of error?.faults ?? []) {
        found++;
        expect(op).toBeLessThan(ops.length);
      }
    });
    expect(found).toBeGreaterThan(0);
  },
  TIMEOUT_MS,
);

test(
  "commits and dumps of the real kernel",
  async () => {
    const { kernel } = lab();
    const random = new Random(FUZZ_SEED);
    const codes = new Map<string, number>();
    // Few are accepted.
    for (let i = 0; i < Math.max(1000, INPUTS / 100); i++) {
      const ops = fuzzedOps(random);
      const outcome = await kernel.commit(ops, random.pick([{}, { dryRun: true }, undefined])).then(
        () => "taken",
        (error: unknown) => {
          if (error instanceof KernelError) return error.code;
          if (error instanceof Sabotage) return "sabotage";
          throw error;
        },
      );
      codes.set(outcome, (codes.get(outcome) ?? 0) + 1);
      if (i % 100 !== 0) continue;
      for (const { family, table } of await kernel.tables()) {
        await kernel.chains({ family, table });
        await kernel.rules({ family, table });
        for (const set of await kernel.sets({ family, table })) await kernel.elements({ family, table }, set);
        await kernel.commit([{ op: "delete", kind: "table", family, table }]);
      }
    }
    expect([...codes.keys()].filter((code) => !["taken", "refused", "invalid", "sabotage"].includes(code))).toEqual([]);
    expect(codes.get("taken")).toBeGreaterThan(0);
    expect(codes.get("refused")).toBeGreaterThan(0);
    expect(codes.get("invalid")).toBeGreaterThan(0);
  },
  TIMEOUT_MS,
);

import { atLength } from "../lab/length.ts";

/**
 * Seed of random inputs: the same in each usual run, so that no run fails by chance, and another one in each nightly run. FUZZ_SEED repeats
 * a run.
 */
export const FUZZ_SEED =
  Number(process.env["FUZZ_SEED"] ?? atLength({ short: 1, usual: 1, nightly: Date.now() % 2 ** 32 })) >>> 0;

/**
 * The addon leaks nothing, on the main thread and in worker threads, however these end. The number of repetitions depends on the run's
 * length. `npm run test:leaks` sets the environment for 10,000 of each kind of work, with an addon compiled under AddressSanitizer.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeNamespace, type Namespace } from "../support/real-kernel.ts";
import { sanitized } from "./sanitizer.ts";
import { atLength } from "../lab/length.ts";

const setting = (name: string, short: number): number => Number(process.env[`LEAKS_${name}`] ?? short);
/** Repetitions of each kind of work. */
const COUNT = setting("COUNT", atLength({ short: 20, usual: 100, nightly: 1000 }));
const WORKERS = setting("WORKERS", atLength({ short: 3, usual: 12, nightly: 48 }));
const WORKERS_AT_ONCE = 3;
const instrumented = process.env["LEAKS_INSTRUMENTED"] === "1";
/** Growth after `COUNT` repetitions that is not a leak, in bytes: a grown buffer, compiled code. */
const NOISE = 65_536;
/** A rejected transaction waits 20 ms for the kernel, and a pass over conntrack takes as long. */
const TIMEOUT_MS = 120_000 + COUNT * 150 + WORKERS * 5000;

let namespaces: Namespace[] = [];
beforeAll(async () => {
  namespaces = await Promise.all(Array.from({ length: 16 }, makeNamespace));
});
afterAll(async () => {
  await Promise.all(namespaces.map(async (namespace) => namespace.remove()));
});

interface Growth {
  readonly bytes: number;
  readonly descriptors: number;
  readonly threads: number;
}

test("a leak is found, and the leaking function is named", { timeout: TIMEOUT_MS }, async () => {
  const { report } = await sanitized("leaky.mjs", ["leak"]);
  expect(report).toContain("LeakSanitizer: detected memory leaks");
  expect(report).toMatch(/leak of 123400 byte\(s\) in 100 object\(s\)[^]*ProbeLeaks/);
});

test("Node alone leaks only the listed objects", { timeout: TIMEOUT_MS }, async () => {
  expect(await sanitized("leaky.mjs", [])).toEqual({ result: true, report: "" });
});

test(`${COUNT} of each kind of transaction, dump and monitor leak nothing`, { timeout: TIMEOUT_MS }, async () => {
  const paths = namespaces.map(({ path }) => path);
  const { result, report } = await sanitized("main.mjs", [String(COUNT), String(NOISE), ...paths], { instrumented });
  expect(report).toBe("");
  const grown = result as Record<string, Growth>;
  expect(Object.keys(grown).length).toBeGreaterThan(15);
  for (const [kind, { bytes, descriptors, threads }] of Object.entries(grown)) {
    expect(bytes, `bytes, ${kind}`).toBeLessThanOrEqual(NOISE);
    expect(descriptors, `descriptors, ${kind}`).toBeLessThanOrEqual(0);
    expect(threads, `threads, ${kind}`).toBeLessThanOrEqual(0);
  }
  if (COUNT >= 10_000) console.table(grown);
});

test(`${WORKERS} worker threads that end in all ways leak nothing`, { timeout: TIMEOUT_MS }, async () => {
  // Every other worker does its full share.
  const args = [WORKERS, Math.ceil((2 * COUNT) / WORKERS), WORKERS_AT_ONCE].map(String);
  const { result, report } = await sanitized("workers.mjs", [...args, ...namespaces.map(({ path }) => path)], {
    instrumented,
    suppressions: ["suppressions.txt", "suppressions-ended.txt"],
  });
  expect(report).toBe("");
  expect(result).toMatchObject({ unloaded: true, level: true });
});

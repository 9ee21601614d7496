/** Retries never stop while there is something to write, and never spin. */
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { KernelError, type KernelErrorCode } from "../../../src/nft/kernel/errors.js";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { Proxier } from "../../../src/proxier/proxier.js";
import { makeProxier, putService } from "./support/proxier.js";
import { isOfService, refuse } from "./support/refusing.js";
import { fakeTime, passInSteps } from "./support/fake-time.js";

let kernel: FakeKernel;
let proxier: Proxier;

beforeEach(() => {
  fakeTime();
  kernel = new FakeKernel();
  proxier = makeProxier(kernel, { watch: true });
});
afterEach(async () => {
  await proxier.stop();
  vi.useRealTimers();
});

const put = (index: number, pods: readonly number[]): void => putService(proxier, index, pods);

const FAILURES: readonly KernelErrorCode[] = [
  "system",
  "unknown-outcome",
  "stale",
  "refused",
  "too-large",
  "no-permission",
];

it.each(FAILURES)("if every transaction fails with %s, retries use backoff", async (code) => {
  const commit = kernel.commit.bind(kernel);
  let tries = 0;
  kernel.commit = () => {
    tries++;
    return Promise.reject(new KernelError(code, "no", { action: "commit" }));
  };
  put(0, [1, 2]);
  put(1, [3]);
  proxier.synced();
  proxier.flush();
  await passInSteps(60_000);
  // At least every syncPeriod (30 s), with at most a few transactions each time.
  expect(tries).toBeGreaterThan(8);
  expect(tries).toBeLessThan(80);
  const before = tries;
  await passInSteps(60_000);
  expect(tries).toBeGreaterThan(before);
  kernel.commit = commit;
  await passInSteps(31_000);
  const [set] = (await kernel.sets({ family: "ip", table: "kube-proxy" })).filter(
    ({ set: name }) => name === "services",
  );
  expect((await kernel.elements({ family: "ip", table: "kube-proxy" }, set)).count).toBe(2);
});

it("if reads fail, retries use backoff", async () => {
  const tables = kernel.tables.bind(kernel);
  let tries = 0;
  kernel.tables = () => {
    tries++;
    return Promise.reject(new KernelError("interrupted", "no", { action: "dump tables" }));
  };
  put(0, [1]);
  proxier.synced();
  proxier.flush();
  await passInSteps(20_000);
  expect(kernel.commits).toEqual([]);
  // Each read retries a few times by itself.
  expect(tries).toBeLessThan(60);
  kernel.tables = tables;
  await passInSteps(31_000);
  expect(kernel.commits).toHaveLength(1);
});

it("if one service is always refused, retries use backoff", async () => {
  const refusals = refuse(kernel);
  refusals.refuses = isOfService(new Set([1]));
  put(0, [1]);
  put(1, [2]);
  proxier.synced();
  proxier.flush();
  await passInSteps(120_000);
  // At 0, 1, 3, 7, 15, 31 and 63 s.
  expect(refusals.refused).toBe(7);
  expect(kernel.commits).toHaveLength(1);
});

/** A table that the kernel refuses to change, whatever is tried. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { FakeKernel } from "../../fakes/fake-kernel.ts";
import { KernelError } from "../../../src/nft/kernel/errors.js";
import type { CommitOptions, CommitResult, Op } from "../../../src/nft/kernel/kernel.js";
import type { RebuildReport } from "../../../src/proxier/observer.js";
import type { Proxier, ProxierOptions } from "../../../src/proxier/proxier.js";
import { keptIn, type LogLine } from "../../support/log.ts";
import { snapshot } from "../../support/snapshot.ts";
import { makeProxier, putService } from "./support/proxier.js";
import { fakeTime, pass } from "./support/fake-time.js";

const TABLE = { family: "ip", table: "kube-proxy" } as const;
const WRITTEN = "table deleted and written from scratch; the kernel refused to change it";
const FAILED = "writing the table from scratch failed";

let kernel: FakeKernel;
let logged: LogLine[];
let rebuilds: RebuildReport[];
let proxier: Proxier;
let commits: (readonly Op[])[];
/** The errno for a batch, and the operation at fault. */
let refuse: ((ops: readonly Op[]) => { readonly errno: string; readonly op: number } | undefined) | undefined;

const isRebuild = (ops: readonly Op[]): boolean => ops.some(({ op, kind }) => op === "delete" && kind === "table");
const isStructural = (ops: readonly Op[]): number => ops.findIndex(({ kind }) => kind === "chain" || kind === "rule");

function make(more: Partial<ProxierOptions> = {}): Proxier {
  return makeProxier(kernel, {
    log: keptIn(logged),
    observers: [{ rebuilt: (report) => void rebuilds.push(report) }],
    watch: true,
    ...more,
  });
}

beforeEach(() => {
  fakeTime();
  kernel = new FakeKernel();
  [logged, rebuilds, commits, refuse] = [[], [], [], undefined];
  const commit = kernel.commit.bind(kernel);
  kernel.commit = (ops: readonly Op[], options?: CommitOptions): Promise<CommitResult> => {
    commits.push(ops);
    const fault = options?.dryRun === true ? undefined : refuse?.(ops);
    if (fault === undefined || fault.op < 0) return commit(ops, options);
    const { errno, op } = fault;
    return Promise.reject(
      new KernelError("refused", `refused: ${errno}`, { action: "commit", errno, faults: [{ op, errno, text: "no" }] }),
    );
  };
  proxier = make();
});
afterEach(async () => {
  await proxier.stop();
  vi.useRealTimers();
});

const put = (index: number, pods: readonly number[]): void => putService(proxier, index, pods);

async function begin(): Promise<void> {
  put(0, [1, 2]);
  proxier.synced();
  proxier.flush();
  await pass(1);
  await pass(1000);
}

async function meddle(): Promise<void> {
  await kernel.asOther(undefined, "nft").commit([{ op: "add", kind: "chain", ...TABLE, chain: "theirs" }]);
}

const said = (message: string): LogLine[] => logged.filter(({ msg }) => msg === message);

describe("a difference that the kernel refuses twice", () => {
  it("causes the table to be deleted and written from scratch in one transaction, with a message that names the operations", async () => {
    await begin();
    refuse = (ops) => (isRebuild(ops) ? undefined : { errno: "ENOENT", op: isStructural(ops) });
    await meddle();
    await pass(1);
    put(1, [3]);
    proxier.flush();
    commits.length = 0;
    await pass(200);
    refuse = undefined;
    expect(said(WRITTEN)).toMatchObject([
      { level: "warn", family: "ip", refusals: 2, refused: ["delete chain theirs: ENOENT, no"] },
    ]);
    expect(rebuilds).toEqual([{ family: "ip", ok: true, refused: ["delete chain theirs: ENOENT, no"] }]);
    expect(commits.filter(isRebuild)).toHaveLength(1);
    // It includes the change of the service that arrived meanwhile.
    const services = (await kernel.sets(TABLE)).find(({ set }) => set === "services");
    expect(services?.count).toBe(2);
    expect((await kernel.chains(TABLE)).map(({ chain }) => chain)).not.toContain("theirs");
  });

  it("has the same effect at a start", async () => {
    await begin();
    const wanted = await snapshot(kernel);
    await proxier.stop();
    await meddle();
    refuse = (ops) => (isRebuild(ops) ? undefined : { errno: "ENOENT", op: isStructural(ops) });
    proxier = make();
    await begin();
    expect(rebuilds).toMatchObject([{ ok: true }]);
    expect(await snapshot(kernel)).toEqual(wanted);
  });

  it("keeps the table if that is refused as well: it is logged each time, and retried with backoff", async () => {
    await begin();
    await meddle();
    refuse = (ops) => ({ errno: "EINVAL", op: isStructural(ops) });
    await pass(60_000);
    expect((await kernel.chains(TABLE)).map(({ chain }) => chain)).toContain("services");
    expect(rebuilds.length).toBeGreaterThan(3);
    expect(rebuilds.length).toBeLessThan(8);
    expect(rebuilds.every(({ ok }) => !ok)).toBe(true);
    expect(said(FAILED).map(({ retryMs }) => retryMs)).toEqual(
      [1000, 2000, 4000, 8000, 16_000, 32_000].slice(0, rebuilds.length),
    );
    refuse = undefined;
    await pass(31_000);
    expect((await kernel.chains(TABLE)).map(({ chain }) => chain)).not.toContain("theirs");
  });
});

describe("other refusals", () => {
  it("an element of a service quarantines that service, and no table is deleted", async () => {
    await begin();
    refuse = (ops) => {
      const op = ops.findIndex((one) => one.kind === "elements" && one.op === "add" && one.set === "services");
      return { errno: "EINVAL", op };
    };
    put(1, [3]);
    proxier.flush();
    await pass(1000);
    expect(commits.filter(isRebuild)).toEqual([]);
    expect(rebuilds).toEqual([]);
  });

  it("a lack of memory does not delete the table", async () => {
    await begin();
    await meddle();
    refuse = (ops) => ({ errno: "ENOMEM", op: isStructural(ops) });
    await pass(10_000);
    expect(rebuilds).toEqual([]);
    expect(said("writing the table failed").length).toBeGreaterThan(3);
  });
});

it.each([0, 1])(
  "a table that is too large for one transaction is deleted first, and written in pieces at once, with %d of them refused",
  async (refusals) => {
    proxier = make({ pieceElements: 8 });
    for (let index = 1; index < 20; index++) put(index, [3, 4]);
    await begin();
    const wanted = await snapshot(kernel);
    let whole = 0;
    let [isDeleted, refused] = [false, 0];
    refuse = (ops) => {
      const elements = ops.findIndex((op) => op.kind === "elements");
      if (isDeleted) return elements >= 0 && refused++ < refusals ? { errno: "EINVAL", op: elements } : undefined;
      if (!isRebuild(ops))
        return { errno: "ENOENT", op: ops.findIndex((op) => op.kind === "chain" && op.op === "delete") };
      if (ops.length === 1) {
        isDeleted = true;
        return undefined;
      }
      whole++;
      return { errno: "ENOMEM", op: 0 };
    };
    await meddle();
    await pass(1000);
    expect(whole).toBe(1);
    expect(rebuilds).toMatchObject([{ ok: true }]);
    expect(await snapshot(kernel)).toEqual(wanted);
    const pieces = commits.slice(commits.findIndex((ops) => isRebuild(ops) && ops.length === 1));
    expect(pieces.length).toBeGreaterThan(4);
  },
);

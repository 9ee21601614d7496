/**
 * The contents of `handover`'s copy, when it is removed, and what remains after a failure. For the effect on packets,
 * see test/packets/handover.test.ts.
 */
import { setImmediate } from "node:timers/promises";
import { beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";

import { defaultConfig } from "../../../../src/config/load.js";
import { structureOps } from "../../../../src/migration/handover/copy.js";
import {
  CopyReplaced,
  handOver,
  handoverLeft,
  removeFormerHandover,
  removeHandover,
} from "../../../../src/migration/handover/handover.js";
import { HandoverRemoval } from "../../../../src/migration/handover/handover-removal.js";
import { SetFlag } from "../../../../src/nft/kernel/constants.js";
import { KernelError } from "../../../../src/nft/kernel/errors.js";
import type { Op } from "../../../../src/nft/kernel/kernel.js";
import { Proxier } from "../../../../src/proxier/proxier.js";
import { FakeKernel } from "../../../fakes/fake-kernel.ts";
import { keptIn, SILENT } from "../../../support/log.ts";
import { putService } from "../../proxier/support/proxier.js";

const COPY = { family: "ip", table: "nft-proxier-handover" } as const;

let now: number;
let kernel: FakeKernel;
beforeEach(() => {
  now = 1_000;
  kernel = new FakeKernel({ now: () => now });
});

/** Writes services with two endpoints each. */
async function serve(services: number): Promise<void> {
  const config = { ...defaultConfig(), bindAddress: "192.0.2.1" };
  const clock = { now: () => now };
  const { interfaces } = kernel;
  const shared = { kernel, interfaces, log: SILENT, clock };
  const proxier = new Proxier({ config, nodeName: "here", families: ["ip", "ip6"], ...shared });
  for (let i = 0; i < services; i++) {
    putService(proxier, i, [2 * i, 2 * i + 1]);
  }
  proxier.synced();
  expect((await proxier.sync()).ok).toBe(true);
  await proxier.stop();
}

async function elements(table: string): Promise<number> {
  let count = 0;
  const ref = { family: "ip", table } as const;
  for (const set of await kernel.sets(ref)) count += (await kernel.elements(ref, set)).count;
  return count;
}

const handover = (forMs = 60_000): ReturnType<typeof handOver> => handOver({ kernel, families: ["ip", "ip6"], forMs });
const tables = async (): Promise<string[]> => (await kernel.tables("ip")).map(({ table }) => table);

/** Calls `before` before the nth commit only. */
function atCommit(nth: number, before: () => Promise<unknown>): void {
  const commit = kernel.commit.bind(kernel);
  let commits = 0;
  kernel.commit = async (ops, options) => {
    if (++commits === nth) {
      kernel.commit = commit;
      await before();
    }
    return commit(ops, options);
  };
}

describe("handOver", () => {
  it("reports copies of the active rules, by family", async () => {
    await serve(3);
    const { copies, failures } = await handover();
    const [first] = copies;
    expect(failures).toEqual([]);
    expect(copies).toMatchObject([
      { family: "ip", vips: 3, nodePorts: 0 },
      { family: "ip6", vips: 0, nodePorts: 0 },
    ]);
    expect(first.elements).toBeGreaterThanOrEqual(3 + 6);
  });

  it("keeps its time limit in the kernel", async () => {
    await serve(1);
    await handover(60_000);
    now += 20_000;
    expect(await handoverLeft(kernel, "ip")).toBe(40_000);
    now += 40_000;
    expect(await handoverLeft(kernel, "ip")).toBe(0);
  });

  it("leaves no elements of services over if it is never removed", async () => {
    await serve(20);
    await handover(60_000);
    expect(await elements(COPY.table)).toBeGreaterThan(20 * 3);
    now += 60_000 + 60_000;
    // Only verdicts remain: one for each number of endpoints.
    expect(await elements(COPY.table)).toBeLessThan(30);
    expect(await elements("kube-proxy")).toBeGreaterThan(20 * 3);
  });

  it("keeps the timeout of a set that packets fill", () => {
    const clients = { set: "clients", flags: SetFlag.eval | SetFlag.timeout, keyType: 7, keyLen: 4, timeout: 600_000n };
    const source = {
      ref: { ...COPY, table: "kube-proxy" },
      chains: new Map(),
      rules: new Map(),
      sets: new Map([["clients", { ...clients, ...COPY, table: "kube-proxy", handle: 1n }]]),
    };
    const outline = { hooked: [], sourceRanges: [] };
    const reached = { chains: new Set<string>(), sets: new Map([["clients", undefined]]) };
    const ops = structureOps({ to: COPY, mark: "mark", outline, source, reached, forMs: 1000 });
    expect(ops).toContainEqual({ op: "add", kind: "set", ...clients, ...COPY });
  });

  it("writes its hooks last, with the time limit", async () => {
    await serve(2);
    const transactions: (readonly Op[])[] = [];
    const commit = kernel.commit.bind(kernel);
    kernel.commit = async (ops, options) => {
      transactions.push(ops);
      return commit(ops, options);
    };
    await handOver({ kernel, families: ["ip"], forMs: 1000 });
    const hooked = transactions.map((ops) =>
      ops.some((op) => op.kind === "chain" && "base" in op && op.base !== undefined),
    );
    expect(hooked).toEqual([false, false, true]);
  });

  it("removes an unfinished copy if the kernel rejects a part, and continues with the other family", async () => {
    await serve(2);
    const refused = new KernelError("system", "commit: ENOMEM", { action: "commit", errno: "ENOMEM" });
    atCommit(2, () => Promise.reject(refused));
    expect(await handover()).toMatchObject({
      copies: [{ family: "ip6" }],
      failures: [{ family: "ip", error: refused }],
    });
    expect(await tables()).toEqual(["kube-proxy"]);
  });

  it("leaves another handover's newer copy alone, and says so", async () => {
    await serve(2);
    atCommit(2, () => handOver({ kernel, families: ["ip"], forMs: 300_000 }));
    const { copies, failures } = await handOver({ kernel, families: ["ip"], forMs: 60_000 });
    expect(copies).toEqual([]);
    expect(failures).toEqual([{ family: "ip", error: expect.any(CopyReplaced) as unknown }]);
    expect(await handoverLeft(kernel, "ip")).toBe(300_000);
    const rules = await kernel.rules(COPY, "nat-postrouting");
    expect(rules).toHaveLength((await kernel.rules({ ...COPY, table: "kube-proxy" }, "nat-postrouting")).length + 1);
  });

  // Before each of its transactions, which write the copy's objects, its elements, its hooks.
  it.each([1, 2, 3])("writes it again if a start removes it before transaction %i", async (nth) => {
    await serve(2);
    await handover(10_000);
    now += 1_000;
    atCommit(nth, async () => expect(await removeFormerHandover(kernel, "ip", () => 500)).toBe("removed"));
    expect(await handover(60_000)).toMatchObject({ copies: [{ family: "ip" }, { family: "ip6" }], failures: [] });
    expect(await handoverLeft(kernel, "ip")).toBe(60_000);
  });

  it("fails if another process removes each copy, complete or not", async () => {
    await serve(2);
    const commit = kernel.commit.bind(kernel);
    kernel.commit = async (ops, options) => {
      const done = await commit(ops, options);
      if (ops.some((op) => op.kind === "chain" && "base" in op && op.base !== undefined))
        await removeHandover(kernel, ["ip"]);
      return done;
    };
    const after = await handover();
    expect(after.failures).toEqual([{ family: "ip", error: expect.any(CopyReplaced) as unknown }]);
    expect(after.copies).toMatchObject([{ family: "ip6" }]);
  });

  it("reads again what changed meanwhile", async () => {
    await serve(2);
    const rules = kernel.rules.bind(kernel);
    let reads = 0;
    kernel.rules = async (ref, chain) => {
      if (++reads === 1) await kernel.commit([{ op: "add", kind: "table", family: "ip", table: "other" }]);
      return rules(ref, chain);
    };
    await handOver({ kernel, families: ["ip"], forMs: 1000 });
    expect(reads).toBe(2);
  });

  it("copies nothing without a table of ours", async () => {
    expect(await handover()).toEqual({ copies: [], failures: [] });
    await kernel.commit([{ op: "add", kind: "table", family: "ip", table: "kube-proxy" }]);
    expect(await handover()).toEqual({ copies: [], failures: [] });
    expect(await removeHandover(kernel, ["ip", "ip6"])).toEqual({ removed: [], failures: [] });
    expect(await handoverLeft(kernel, "ip")).toBeUndefined();
  });
});

describe("removeHandover", () => {
  it("continues with the other family if one cannot be removed, and accepts a missing copy", async () => {
    await serve(1);
    await handover();
    const refused = new KernelError("system", "commit: ENOMEM", { action: "commit", errno: "ENOMEM" });
    atCommit(1, () => Promise.reject(refused));
    expect(await removeHandover(kernel, ["ip", "ip6"])).toEqual({
      removed: ["ip6"],
      failures: [{ family: "ip", error: refused }],
    });
    atCommit(1, () => removeHandover(kernel, ["ip"]));
    expect(await removeHandover(kernel, ["ip", "ip6"])).toEqual({ removed: ["ip"], failures: [] });
  });
});

describe("removeFormerHandover", () => {
  it("removes a copy that was active before this process started, or that has expired", async () => {
    await serve(1);
    await handover(60_000);
    now += 1_000;
    expect(await removeFormerHandover(kernel, "ip", () => 900)).toBe("removed");
    now += 120_000;
    expect(await removeFormerHandover(kernel, "ip6", () => 500_000)).toBe("removed");
    expect(await removeFormerHandover(kernel, "ip6", () => 0)).toBe("none");
  });

  it("leaves a copy that became active later", async () => {
    await serve(1);
    await handover(60_000);
    now += 1_000;
    expect(await removeFormerHandover(kernel, "ip", () => 1_100)).toBe("newer");
    expect(await handoverLeft(kernel, "ip")).toBe(59_000);
  });

  it("leaves a copy that replaces an older one during the check", async () => {
    await serve(2);
    await handover();
    now += 1_000;
    atCommit(1, () => handover());
    expect(await removeFormerHandover(kernel, "ip", () => 500)).toBe("newer");
    expect(await handoverLeft(kernel, "ip")).toBe(60_000);
  });

  it("leaves a copy that becomes active during the check", async () => {
    await serve(2);
    const commit = kernel.commit.bind(kernel);
    let removal: Promise<string> | undefined;
    let commits = 0;
    kernel.commit = async (ops, options) => {
      // The third commit adds its hooks: a start has found the copy incomplete, and may remove it right after them.
      if (++commits === 3) {
        removal = removeFormerHandover(kernel, "ip", () => 500);
        await setImmediate();
      }
      // The start's own commit.
      else if (commits === 4) await setImmediate();
      return commit(ops, options);
    };
    expect(await handOver({ kernel, families: ["ip"], forMs: 60_000 })).toMatchObject({ failures: [] });
    expect(await removal).toBe("newer");
    expect(await handoverLeft(kernel, "ip")).toBe(60_000);
  });

  it("accepts that a copy disappears during the check", async () => {
    await serve(1);
    await handover();
    now += 1_000;
    atCommit(1, () => removeHandover(kernel, ["ip"]));
    expect(await removeFormerHandover(kernel, "ip", () => 500)).toBe("none");
  });
});

describe("HandoverRemoval", () => {
  it("removes each family's copy once, when that family's rules are active", async () => {
    await serve(1);
    await handover();
    now += 1;
    const logged: Record<string, unknown>[] = [];
    const uptime = vi.spyOn(process, "uptime").mockReturnValue(0);
    onTestFinished(() => uptime.mockRestore());
    const removal = new HandoverRemoval({ kernel, log: keptIn(logged) });
    removal.synced({ family: "ip", ok: false });
    await removal.done();
    expect(logged).toEqual([]);
    removal.synced({ family: "ip", ok: true });
    removal.synced({ family: "ip", ok: true });
    await removal.done();
    expect(logged).toMatchObject([{ family: "ip", msg: "handover copy removed" }]);
    expect(await handoverLeft(kernel, "ip6")).toBe(59_999);
  });

  it("says that it keeps a copy that was made later", async () => {
    await serve(1);
    await handover();
    const logged: Record<string, unknown>[] = [];
    const removal = new HandoverRemoval({ kernel, log: keptIn(logged) });
    removal.synced({ family: "ip", ok: true });
    await removal.done();
    expect(logged).toMatchObject([{ family: "ip", msg: "handover copy is newer than this start; kept" }]);
    expect(await handoverLeft(kernel, "ip")).toBe(60_000);
  });

  it("reports copies that it could not remove, and continues", async () => {
    await serve(1);
    await handover();
    kernel.tables = () => Promise.reject(new Error("no answer"));
    const logged: Record<string, unknown>[] = [];
    const removal = new HandoverRemoval({ kernel, log: keptIn(logged) });
    removal.synced({ family: "ip", ok: true });
    await removal.done();
    expect(logged).toMatchObject([
      { msg: "removing the handover copy failed", hint: expect.stringContaining("--remove") as string },
    ]);
  });
});

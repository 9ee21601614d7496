import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { FakeKernel } from "../../../fakes/fake-kernel.ts";
import { KernelError } from "../../../../src/nft/kernel/errors.js";
import type { Op } from "../../../../src/nft/kernel/kernel.js";
import {
  type LeftoverOptions,
  LeftoverRemoval,
  removeLeftovers,
} from "../../../../src/migration/leftovers/leftover-removal.js";
import { keptIn, type LogLine } from "../../../support/log.ts";
import { putFile, temporaryDirectory } from "../../../support/temporary-directory.ts";

const NAT = { family: "ip", table: "nat" } as const;

let root: string;
let lines: LogLine[];
let kernel: FakeKernel;
beforeEach(() => {
  root = temporaryDirectory();
  lines = [];
  kernel = new FakeKernel();
});
const NO_LINK = {
  exchange: () => Promise.reject(new KernelError("system", "no such link", { action: "ask", errno: "ENODEV" })),
};
const NO_LEGACY = { chains: () => Promise.resolve([]), layout: () => Promise.resolve("") };

function options(legacy: LeftoverOptions["kernel"]["legacy"] = NO_LEGACY): LeftoverOptions {
  const log = keptIn(lines, "info");
  return { kernel: Object.assign(kernel, { legacy, connection: NO_LINK }), log, families: ["ip", "ip6"], root };
}

const clean = (): Promise<boolean> => removeLeftovers(options());

async function load(...chains: readonly string[]): Promise<void> {
  await kernel.commit([
    { op: "add", kind: "table", ...NAT },
    ...chains.map((chain): Op => ({ op: "add", kind: "chain", ...NAT, chain })),
  ]);
}

describe("leftovers of kube-proxy's other modes", () => {
  it("are not mentioned if there are none", async () => {
    expect(await clean()).toBe(true);
    expect(lines).toEqual([]);
  });

  it("leftovers in iptables-nft's tables are removed, and their number is reported", async () => {
    await load("KUBE-SERVICES", "KUBE-SVC-A", "MINE");
    expect(await clean()).toBe(true);
    expect(lines).toMatchObject([{ level: "info", family: "ip", table: "nat", chains: 2, jumps: 0 }]);
  });

  it("leftovers that another process uses are named, and the node is not clean", async () => {
    await load("KUBE-MARK-MASQ", "MINE");
    const jump = { type: "immediate", dreg: 0, data: { verdict: "jump", chain: "KUBE-MARK-MASQ" } } as const;
    await kernel.commit([{ op: "add", kind: "rule", ...NAT, chain: "MINE", exprs: [jump] }]);
    expect(await clean()).toBe(false);
    expect(lines).toMatchObject([
      { level: "warn", table: "nat", chain: "KUBE-MARK-MASQ", user: "a rule of chain MINE" },
    ]);
  });

  it("leftovers elsewhere are named with the command to run, and the node is not clean", async () => {
    await putFile(root, "proc/net/ip_tables_names", "nat\n");
    const legacy = { ...NO_LEGACY, chains: () => Promise.resolve(["KUBE-SERVICES"]) };
    expect(await removeLeftovers(options(legacy))).toBe(false);
    expect(lines).toMatchObject([
      { level: "warn", leftover: "iptables-legacy", seen: "ip nat: KUBE-SERVICES", command: "kube-proxy --cleanup" },
    ]);
  });

  it("leftovers that cannot be removed do not prevent the rest", async () => {
    await load("KUBE-SERVICES");
    kernel.failNext({ when: (op) => op.op === "delete", errno: "EPERM" });
    expect(await clean()).toBe(false);
    expect(lines).toMatchObject([{ level: "warn", code: "refused" }]);
    expect(await kernel.chains(NAT)).toHaveLength(1);
  });
});

describe("while the proxier runs", () => {
  const loadBoth = async (): Promise<void> => {
    for (const family of ["ip", "ip6"] as const) {
      await kernel.commit([
        { op: "add", kind: "table", family, table: "nat" },
        { op: "add", kind: "chain", family, table: "nat", chain: "KUBE-SERVICES" },
      ]);
    }
  };
  const left = async (): Promise<number[]> => [
    (await kernel.chains(NAT)).length,
    (await kernel.chains({ ...NAT, family: "ip6" })).length,
  ];

  it("a family's leftovers are removed when its rules are active, and not before", async () => {
    await loadBoth();
    await putFile(root, "proc/net/ip_tables_names", "nat\n");
    const legacy = { ...NO_LEGACY, chains: () => Promise.resolve(["KUBE-SERVICES"]) };
    const removal = new LeftoverRemoval(options(legacy));
    removal.synced({ family: "ip6", ok: false });
    await removal.done();
    expect(await left()).toEqual([1, 1]);
    removal.synced({ family: "ip", ok: true });
    await removal.done();
    expect(await left()).toEqual([0, 1]);
    removal.synced({ family: "ip6", ok: true });
    await removal.done();
    expect(await left()).toEqual([0, 0]);
    expect(lines.filter(({ leftover }) => leftover !== undefined)).toHaveLength(1);
  });

  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  /** A minute passes, so the proxier checks again. */
  async function minute(removal: LeftoverRemoval): Promise<void> {
    vi.advanceTimersByTime(60_000);
    await expect.poll(() => vi.getTimerCount()).toBeGreaterThan(0);
    await removal.done();
  }

  const bothActive = async (removal: LeftoverRemoval): Promise<void> => {
    for (const family of ["ip", "ip6"] as const) removal.synced({ family, ok: true });
    await removal.done();
  };

  it("rules that a kube-proxy writes again before it ends are removed again", async () => {
    const removal = new LeftoverRemoval(options());
    await loadBoth();
    await bothActive(removal);
    await loadBoth();
    await minute(removal);
    expect(await left()).toEqual([0, 0]);
    expect(removal.returned).toEqual([]);
    expect(lines.filter(({ level }) => level === "warn")).toEqual([]);
  });

  it("rules that a running kube-proxy writes stay, and are named once until they are gone", async () => {
    const removal = new LeftoverRemoval(options());
    await bothActive(removal);
    for (let i = 1; i <= 5; i++) await minute(removal);
    await loadBoth();
    await minute(removal);
    await minute(removal);
    expect(await left()).toEqual([1, 1]);
    expect(removal.returned).toEqual(["ip nat", "ip6 nat"]);
    expect(lines).toMatchObject([
      { level: "warn", msg: "rules of kube-proxy's iptables mode found beside ours", tables: ["ip nat", "ip6 nat"] },
    ]);

    await clean();
    lines.splice(0);
    await minute(removal);
    expect(removal.returned).toEqual([]);
    expect(lines).toMatchObject([{ level: "info", msg: "rules of kube-proxy's iptables mode are gone" }]);
  });

  it("the older iptables is checked as well", async () => {
    const legacy = { ...NO_LEGACY, chains: () => Promise.resolve(["KUBE-SERVICES", "KUBE-SVC-A"]) };
    const removal = new LeftoverRemoval(options(legacy));
    await bothActive(removal);
    await putFile(root, "proc/net/ip_tables_names", "nat\n");
    for (let i = 1; i <= 6; i++) await minute(removal);
    expect(removal.returned).toEqual(["ip nat of iptables-legacy"]);
  });

  it("the older iptables' table is read again only if it looks different", async () => {
    let chains = ["KUBE-SERVICES"];
    let layout = "1";
    const read: string[] = [];
    const legacy = {
      chains: (family: string, table: string) => {
        read.push(`${family} ${table}`);
        return Promise.resolve(chains);
      },
      layout: () => Promise.resolve(layout),
    };
    const removal = new LeftoverRemoval(options(legacy));
    await bothActive(removal);
    await putFile(root, "proc/net/ip_tables_names", "nat\n");
    for (let i = 1; i <= 6; i++) await minute(removal);
    expect(removal.returned).toEqual(["ip nat of iptables-legacy"]);
    read.splice(0);
    for (let i = 1; i <= 3; i++) await minute(removal);
    expect(read).toEqual([]);
    expect(removal.returned).toEqual(["ip nat of iptables-legacy"]);
    [chains, layout] = [[], "2"];
    await minute(removal);
    expect(read).toEqual(["ip nat"]);
    expect(removal.returned).toEqual([]);
  });

  it("no check follows the end", async () => {
    const removal = new LeftoverRemoval(options());
    await bothActive(removal);
    await removal.close();
    await loadBoth();
    expect(vi.getTimerCount()).toBe(0);
    expect(await left()).toEqual([1, 1]);
  });
});

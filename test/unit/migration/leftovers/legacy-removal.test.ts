import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import { KernelError } from "../../../../src/netlink/errors.js";
import type { LegacyRemoval, LegacyTables } from "../../../../src/netlink/legacy-tables.js";
import {
  type LeftoverOptions,
  LeftoverRemoval,
  removeLeftovers,
} from "../../../../src/migration/leftovers/leftover-removal.js";
import { ownChains } from "../../../../src/migration/leftovers/iptables-names.js";
import { FakeKernel } from "../../../fakes/fake-kernel.ts";
import { keptIn, type LogLine } from "../../../support/log.ts";
import { putFile, temporaryDirectory } from "../../../support/temporary-directory.ts";

const NOTHING: LegacyRemoval = { chains: 0, jumps: 0, kept: [], countersKept: true };
const REMOVED = "leftovers of kube-proxy's other modes removed";

let root: string;
let lines: LogLine[];
/** Requests to the kernel: "ip nat". */
let asked: string[];
/** The kernel's answers by table, each an error or a removal; the last one repeats. By default, nothing is there. */
let answers: Record<string, (LegacyRemoval | Error)[]>;
/** The chains in each table. */
let present: Record<string, string[]>;
beforeEach(() => {
  root = temporaryDirectory();
  lines = [];
  asked = [];
  answers = {};
  present = {};
});
const names = (family: string, ...tables: readonly string[]): Promise<void> =>
  putFile(root, `proc/net/${family}_tables_names`, `${tables.join("\n")}\n`);

const system = (errno: string): KernelError =>
  new KernelError("system", `the kernel says ${errno}`, { action: "replace iptables table", errno });

const remove: LegacyTables["remove"] = async (family, table, own, lockFile) => {
  asked.push(`${family} ${table}`);
  expect(own).toBe(ownChains(table as "nat"));
  expect(lockFile).toBe(join(root, "run/xtables.lock"));
  const list = answers[`${family} ${table}`] ?? [NOTHING];
  const answer = list.length > 1 ? list.shift() : list[0];
  if (answer instanceof Error) throw answer;
  return answer ?? NOTHING;
};

const chains = (family: string, table: string): Promise<string[]> =>
  Promise.resolve(present[`${family} ${table}`] ?? []);

const options = (more: Partial<LeftoverOptions> = {}): LeftoverOptions => ({
  kernel: new FakeKernel(),
  log: keptIn(lines, "info"),
  families: ["ip", "ip6"],
  root,
  legacy: { chains, remove },
  ...more,
});

describe("kube-proxy's chains in the older iptables", () => {
  it("are not requested in missing tables", async () => {
    await names("ip", "raw", "mangle");
    expect(await removeLeftovers(options())).toBe(true);
    expect(asked).toEqual(["ip mangle"]);
    expect(lines).toEqual([]);
  });

  it("are removed, and their number and the missing lock are reported", async () => {
    await names("ip", "nat", "filter");
    answers = {
      "ip nat": [{ ...NOTHING, chains: 40, jumps: 3 }],
      "ip filter": [{ ...NOTHING, chains: 5, jumps: 8, unlocked: "/run/xtables.lock: ENOENT" }],
    };
    expect(await removeLeftovers(options())).toBe(true);
    const common = { level: "info", msg: REMOVED, leftover: "iptables-legacy", family: "ip" };
    expect(lines).toMatchObject([
      { ...common, table: "nat", chains: 40, jumps: 3 },
      { ...common, table: "filter", chains: 5, jumps: 8, unlocked: "/run/xtables.lock: ENOENT" },
    ]);
    expect(lines[0]).not.toHaveProperty("unlocked");
  });

  it("may be in use: they are named, without a command that would break their user", async () => {
    await names("ip", "nat");
    present = { "ip nat": ["KUBE-MARK-MASQ"] };
    const kept = [{ chain: "KUBE-MARK-MASQ", user: "a rule of chain CNI-HOSTPORT-SETMARK" }];
    answers = { "ip nat": [{ ...NOTHING, kept }] };
    expect(await removeLeftovers(options())).toBe(false);
    expect(lines).toMatchObject([{ level: "warn", leftover: "iptables-legacy", table: "nat", ...kept[0] }]);
  });

  it("are tried again if another process interferes", async () => {
    await names("ip", "nat");
    answers = { "ip nat": [system("EAGAIN"), system("EAGAIN"), { ...NOTHING, chains: 1 }] };
    expect(await removeLeftovers(options())).toBe(true);
    expect(asked).toHaveLength(3);
    expect(lines).toMatchObject([{ msg: REMOVED }]);
  });

  it("chains that cannot be removed are named with the reason and the command, and the other tables are cleaned", async () => {
    await names("ip", "nat", "filter");
    present = { "ip nat": ["KUBE-SERVICES", "KUBE-SVC-A", "MINE"] };
    answers = { "ip nat": [system("EBADMSG")], "ip filter": [{ ...NOTHING, chains: 1 }] };
    expect(await removeLeftovers(options())).toBe(false);
    expect(lines).toMatchObject([
      {
        level: "warn",
        msg: "leftover of kube-proxy found",
        seen: "ip nat: KUBE-SERVICES and 1 more chain",
        command: expect.stringMatching(/^iptables-legacy-save -t nat \|.*iptables-legacy-restore$/) as string,
        err: "the kernel says EBADMSG",
      },
      { level: "info", table: "filter" },
    ]);
  });

  it("are not in another program's table, whose errors are therefore not reported", async () => {
    await names("ip", "nat");
    present = { "ip nat": ["DOCKER"] };
    answers = { "ip nat": [system("EBADMSG")] };
    expect(await removeLeftovers(options())).toBe(true);
    expect(lines).toEqual([]);
  });

  it("chains of a family that is not served stay, and are named", async () => {
    await names("ip", "nat");
    await names("ip6", "nat");
    present = { "ip6 nat": ["KUBE-SERVICES"] };
    expect(await removeLeftovers(options({ families: ["ip"] }))).toBe(false);
    expect(asked).toEqual(["ip nat"]);
    expect(lines).toMatchObject([{ level: "warn", seen: "ip6 nat: KUBE-SERVICES" }]);
  });

  it("are named if nothing can remove them", async () => {
    await names("ip", "nat");
    present = { "ip nat": ["KUBE-SERVICES"] };
    expect(await removeLeftovers(options({ legacy: { chains } }))).toBe(false);
    expect(lines).toMatchObject([{ level: "warn", seen: "ip nat: KUBE-SERVICES" }]);
  });

  it("chains whose removal resets rule counters are logged with that fact", async () => {
    await names("ip", "nat");
    answers = { "ip nat": [{ ...NOTHING, chains: 1, countersKept: false }] };
    expect(await removeLeftovers(options())).toBe(true);
    expect(lines).toMatchObject([
      { msg: REMOVED },
      { level: "warn", table: "nat", msg: expect.stringContaining("counters") as string },
    ]);
  });
});

describe("while the proxier runs", () => {
  beforeEach(async () => {
    await names("ip", "nat");
    await names("ip6", "nat");
  });

  it("a family's chains are removed when its rules are active, and not before", async () => {
    const removal = new LeftoverRemoval(options());
    removal.synced({ family: "ip6", ok: false });
    await removal.done();
    expect(asked).toEqual([]);
    removal.synced({ family: "ip", ok: true });
    await removal.done();
    removal.synced({ family: "ip", ok: true });
    expect(asked).toEqual(["ip nat"]);
    removal.synced({ family: "ip6", ok: true });
    await removal.done();
    expect(asked).toEqual(["ip nat", "ip6 nat"]);
  });

  it("the end does not wait for another process", async () => {
    answers = { "ip nat": [system("EAGAIN")] };
    const removal = new LeftoverRemoval(options());
    removal.synced({ family: "ip", ok: true });
    while (asked.length < 2) await new Promise((resolve) => setTimeout(resolve, 10));
    // Otherwise it would try for a quarter of an hour.
    await removal.close();
    expect(lines).toEqual([]);
  });
});

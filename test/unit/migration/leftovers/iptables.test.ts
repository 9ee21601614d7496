import { beforeEach, describe, expect, it } from "vitest";
import { Hook, Priority } from "../../../../src/nft/kernel/constants.js";
import { FakeKernel } from "../../../fakes/fake-kernel.ts";
import type { BaseChain, Expr, Kernel, Op, TableRef } from "../../../../src/nft/kernel/kernel.js";
import { removeIptablesChains } from "../../../../src/migration/leftovers/iptables.js";
import { isOwnChain } from "../../../../src/migration/leftovers/iptables-names.js";
import { jump, pack, tableWith, verdict } from "../../../support/operations.ts";

const NAT: TableRef = { family: "ip", table: "nat" };
const FILTER: TableRef = { family: "ip", table: "filter" };

const goto = (chain: string): Expr => ({ type: "immediate", dreg: 0, data: { verdict: "goto", chain } });
const accept = verdict("accept");
/** A match of xtables, which only nft_compat understands. */
const match: Expr = { type: "opaque", name: "match", data: Uint8Array.of(8, 0, 1, 0, 0x78, 0, 0, 0) };

const BASE: Readonly<Record<string, BaseChain>> = {
  PREROUTING: { type: "nat", hook: Hook.prerouting, priority: Priority.dstnat },
  OUTPUT: { type: "nat", hook: Hook.output, priority: Priority.dstnat },
  POSTROUTING: { type: "nat", hook: Hook.postrouting, priority: Priority.srcnat },
};
const FILTER_BASE: Readonly<Record<string, BaseChain>> = {
  INPUT: { type: "filter", hook: Hook.input, priority: 0 },
  FORWARD: { type: "filter", hook: Hook.forward, priority: 0 },
  OUTPUT: { type: "filter", hook: Hook.output, priority: 0 },
};

/** Chains by name, with their rules; those in `base` are base chains. */
type Chains = Readonly<Record<string, readonly (readonly Expr[])[]>>;

async function load(kernel: Kernel, ref: TableRef, chains: Chains, base: typeof BASE = BASE): Promise<void> {
  const withBase = Object.entries(chains).map(([name, rules]) => [name, { base: base[name], rules }] as const);
  await kernel.commit(tableWith(ref, Object.fromEntries(withBase)));
}

/** Returns the chains in the form of `load`, with only the targets of their rules. */
async function chainsOf(kernel: Kernel, ref: TableRef): Promise<Record<string, string[]>> {
  const out: Record<string, string[]> = {};
  for (const { chain } of await kernel.chains(ref)) out[chain] = [];
  for (const { chain, exprs } of await kernel.rules(ref)) {
    const verdict = exprs.find((expr) => expr.type === "immediate")?.data as { verdict: string; chain?: string };
    out[chain].push(verdict?.chain ?? verdict?.verdict ?? "no verdict");
  }
  return out;
}

/** kube-proxy's chains for one service, its jumps, and other programs' rules around them. */
const NODE_NAT: Chains = {
  PREROUTING: [[match, jump("KUBE-SERVICES")], [jump("cali-PREROUTING")]],
  OUTPUT: [[accept], [match, jump("KUBE-SERVICES")]],
  POSTROUTING: [[match, jump("KUBE-POSTROUTING")], [jump("CNI-HOSTPORT-MASQ")]],
  "KUBE-SERVICES": [[match, jump("KUBE-SVC-AAAA")], [jump("KUBE-NODEPORTS")]],
  "KUBE-NODEPORTS": [[match, jump("KUBE-EXT-AAAA")]],
  "KUBE-EXT-AAAA": [[jump("KUBE-MARK-MASQ")], [jump("KUBE-SVL-AAAA")], [jump("KUBE-SVC-AAAA")]],
  "KUBE-SVC-AAAA": [[match, jump("KUBE-SEP-BBBB")]],
  "KUBE-SVL-AAAA": [[match, jump("KUBE-SEP-BBBB")]],
  "KUBE-FW-AAAA": [[jump("KUBE-EXT-AAAA")], [jump("KUBE-MARK-DROP")]],
  "KUBE-SEP-BBBB": [[match, jump("KUBE-MARK-MASQ")], [match]],
  "KUBE-MARK-MASQ": [[match]],
  "KUBE-MARK-DROP": [[match]],
  "KUBE-POSTROUTING": [[match]],
  "KUBE-PROXY-CANARY": [],
  "KUBE-KUBELET-CANARY": [],
  "KUBE-ROUTER-SERVICES": [[accept]],
  "cali-PREROUTING": [[accept]],
  "CNI-HOSTPORT-MASQ": [[match]],
};
const OTHERS_NAT = {
  PREROUTING: ["cali-PREROUTING"],
  OUTPUT: ["accept"],
  POSTROUTING: ["CNI-HOSTPORT-MASQ"],
  "KUBE-MARK-DROP": ["no verdict"],
  "KUBE-KUBELET-CANARY": [],
  "KUBE-ROUTER-SERVICES": ["accept"],
  "cali-PREROUTING": ["accept"],
  "CNI-HOSTPORT-MASQ": ["no verdict"],
};

let kernel: FakeKernel;
beforeEach(() => (kernel = new FakeKernel()));

describe("kube-proxy's objects", () => {
  it.each([
    ["nat", "KUBE-SERVICES", true],
    ["nat", "KUBE-SVC-TCOU7JCQXEZGVUNU", true],
    ["nat", "KUBE-SVCX", false],
    ["nat", "KUBE-EXTERNAL-SERVICES", false],
    ["nat", "KUBE-XLB-TCOU7JCQXEZGVUNU", true],
    ["filter", "KUBE-XLB-TCOU7JCQXEZGVUNU", false],
    ["nat", "KUBE-NODE-PORT", true],
    ["filter", "KUBE-NODE-PORT", true],
    ["nat", "KUBE-LOAD-BALANCER", true],
    ["nat", "KUBE-FIREWALL", true],
    ["nat", "KUBE-FIRE-WALL", true],
    ["filter", "KUBE-IPVS-FILTER", true],
    ["filter", "KUBE-IPVS-OUT-FILTER", true],
    ["filter", "KUBE-SOURCE-RANGES-FIREWALL", true],
    ["nat", "KUBE-PORTALS-CONTAINER", true],
    ["nat", "KUBE-PORTALS-HOST", true],
    ["nat", "KUBE-NODEPORT-CONTAINER", true],
    ["nat", "KUBE-NODEPORT-HOST", true],
    ["filter", "KUBE-NODEPORT-NON-LOCAL", true],
    ["nat", "KUBE-PROXY", true],
    ["nat", "KUBE-MARK-DROP", false],
    ["nat", "KUBE-HOSTPORTS", false],
    ["nat", "KUBE-HP-TCOU7JCQXEZGVUNU", false],
    ["nat", "KUBE-IPTABLES-HINT", false],
    ["nat", "MY-KUBE-SVC-A", false],
    ["filter", "KUBE-EXTERNAL-SERVICES", true],
    ["filter", "KUBE-PROXY-FIREWALL", true],
    ["filter", "KUBE-FIREWALL", false],
    ["filter", "KUBE-SVC-TCOU7JCQXEZGVUNU", false],
    ["mangle", "KUBE-PROXY-CANARY", true],
    ["mangle", "KUBE-KUBELET-CANARY", false],
    ["mangle", "KUBE-IPTABLES-HINT", false],
    ["mangle", "KUBE-SERVICES", false],
  ] as const)("%s %s: %s", (table, chain, own) => {
    expect(isOwnChain(table, chain)).toBe(own);
  });
});

describe("cleaning iptables-nft's tables", () => {
  it("removes kube-proxy's chains and the jumps to them, and nothing else, in one transaction", async () => {
    await load(kernel, NAT, NODE_NAT);
    const before = kernel.commits.length;
    const [cleanup, ...more] = await removeIptablesChains(kernel, ["ip", "ip6"]);
    expect(cleanup).toEqual({ family: "ip", table: "nat", chains: 10, jumps: 3, kept: [] });
    expect(more).toEqual([]);
    expect(kernel.commits).toHaveLength(before + 1);
    expect(await chainsOf(kernel, NAT)).toEqual(OTHERS_NAT);
  });

  it("finds nothing the second time, and writes nothing", async () => {
    await load(kernel, NAT, NODE_NAT);
    await removeIptablesChains(kernel, ["ip"]);
    const before = kernel.commits.length;
    expect(await removeIptablesChains(kernel, ["ip"])).toEqual([]);
    expect(kernel.commits).toHaveLength(before);
  });

  it("filter and mangle are cleaned as well, and only the given families", async () => {
    const filter: Chains = {
      INPUT: [[match, jump("KUBE-EXTERNAL-SERVICES")], [jump("KUBE-NODEPORTS")], [jump("KUBE-FIREWALL")]],
      FORWARD: [[jump("KUBE-PROXY-FIREWALL")], [jump("KUBE-FORWARD")], [jump("KUBE-SERVICES")], [accept]],
      OUTPUT: [[jump("KUBE-SERVICES")], [jump("KUBE-FIREWALL")]],
      "KUBE-SERVICES": [[match]],
      "KUBE-EXTERNAL-SERVICES": [],
      "KUBE-NODEPORTS": [],
      "KUBE-FORWARD": [[match, accept]],
      "KUBE-PROXY-FIREWALL": [],
      "KUBE-PROXY-CANARY": [],
      "KUBE-FIREWALL": [[match]],
      "KUBE-KUBELET-CANARY": [],
    };
    for (const family of ["ip", "ip6"] as const) {
      await load(kernel, { ...FILTER, family }, filter, FILTER_BASE);
      await load(kernel, { family, table: "mangle" }, { "KUBE-PROXY-CANARY": [], "KUBE-IPTABLES-HINT": [] });
    }
    expect(await removeIptablesChains(kernel, ["ip6"])).toEqual([
      { family: "ip6", table: "filter", chains: 6, jumps: 6, kept: [] },
      { family: "ip6", table: "mangle", chains: 1, jumps: 0, kept: [] },
    ]);
    expect(await chainsOf(kernel, { ...FILTER, family: "ip6" })).toEqual({
      INPUT: ["KUBE-FIREWALL"],
      FORWARD: ["accept"],
      OUTPUT: ["KUBE-FIREWALL"],
      "KUBE-FIREWALL": ["no verdict"],
      "KUBE-KUBELET-CANARY": [],
    });
    expect(await chainsOf(kernel, { family: "ip6", table: "mangle" })).toEqual({ "KUBE-IPTABLES-HINT": [] });
    expect(Object.keys(await chainsOf(kernel, FILTER))).toHaveLength(11);
  });

  it("removes chains of releases before 1.24, which a KUBE-XLB- chain refers to", async () => {
    await load(kernel, NAT, {
      PREROUTING: [[match, jump("KUBE-SERVICES")]],
      "KUBE-SERVICES": [
        [match, jump("KUBE-FW-AAAA")],
        [match, jump("KUBE-XLB-AAAA")],
      ],
      "KUBE-FW-AAAA": [[match, jump("KUBE-XLB-AAAA")], [jump("KUBE-MARK-DROP")]],
      "KUBE-XLB-AAAA": [[match, jump("KUBE-MARK-MASQ")], [match, jump("KUBE-SVC-AAAA")], [jump("KUBE-SEP-BBBB")]],
      "KUBE-SVC-AAAA": [[match, jump("KUBE-SEP-BBBB")]],
      "KUBE-SEP-BBBB": [[match]],
      "KUBE-MARK-MASQ": [[match]],
      "KUBE-MARK-DROP": [[match]],
    });
    expect(await removeIptablesChains(kernel, ["ip"])).toMatchObject([{ chains: 6, jumps: 1, kept: [] }]);
    expect(await chainsOf(kernel, NAT)).toEqual({ PREROUTING: [], "KUBE-MARK-DROP": ["no verdict"] });
  });

  it("removes chains of the IPVS mode, but not the kubelet's of the same name in filter", async () => {
    await load(kernel, NAT, {
      PREROUTING: [[match, jump("KUBE-SERVICES")]],
      POSTROUTING: [[match, jump("KUBE-POSTROUTING")]],
      "KUBE-SERVICES": [
        [match, jump("KUBE-LOAD-BALANCER")],
        [match, jump("KUBE-NODE-PORT")],
      ],
      "KUBE-LOAD-BALANCER": [[match, jump("KUBE-FIREWALL")], [jump("KUBE-MARK-MASQ")]],
      "KUBE-FIREWALL": [[jump("KUBE-MARK-DROP")]],
      "KUBE-NODE-PORT": [[match, jump("KUBE-MARK-MASQ")]],
      "KUBE-POSTROUTING": [[match]],
      "KUBE-MARK-MASQ": [[match]],
      "KUBE-MARK-DROP": [[match]],
    });
    const filter: Chains = {
      INPUT: [
        [match, jump("KUBE-NODE-PORT")],
        [jump("KUBE-PROXY-FIREWALL")],
        [jump("KUBE-IPVS-FILTER")],
        [jump("KUBE-FIREWALL")],
      ],
      OUTPUT: [[jump("KUBE-IPVS-OUT-FILTER")]],
      "KUBE-NODE-PORT": [[match, accept]],
      "KUBE-PROXY-FIREWALL": [[match, jump("KUBE-SOURCE-RANGES-FIREWALL")]],
      "KUBE-SOURCE-RANGES-FIREWALL": [[match]],
      "KUBE-IPVS-FILTER": [[match]],
      "KUBE-IPVS-OUT-FILTER": [[match]],
      "KUBE-FIREWALL": [[match]],
    };
    await load(kernel, FILTER, filter, FILTER_BASE);
    expect(await removeIptablesChains(kernel, ["ip"])).toMatchObject([
      { table: "nat", chains: 6, jumps: 2, kept: [] },
      { table: "filter", chains: 5, jumps: 4, kept: [] },
    ]);
    expect(await chainsOf(kernel, FILTER)).toEqual({
      INPUT: ["KUBE-FIREWALL"],
      OUTPUT: [],
      "KUBE-FIREWALL": ["no verdict"],
    });
  });

  it("leaves tables of these names without kube-proxy's chains alone", async () => {
    await load(kernel, NAT, { PREROUTING: [[accept]], "KUBE-ROUTER-SERVICES": [[jump("MINE")]], MINE: [] });
    const before = kernel.commits.length;
    expect(await removeIptablesChains(kernel, ["ip"])).toEqual([]);
    expect(kernel.commits).toHaveLength(before);
  });
});

describe("a chain that another process uses", () => {
  it("stays with all chains that it refers to, and is named", async () => {
    await load(kernel, NAT, {
      ...NODE_NAT,
      "CNI-HOSTPORT-SETMARK": [[match, jump("KUBE-MARK-MASQ")]],
      MINE: [[match, goto("KUBE-EXT-AAAA")]],
    });
    const [cleanup] = await removeIptablesChains(kernel, ["ip"]);
    expect(cleanup.kept).toEqual([
      { chain: "KUBE-MARK-MASQ", user: "a rule of chain CNI-HOSTPORT-SETMARK" },
      { chain: "KUBE-EXT-AAAA", user: "a rule of chain MINE" },
    ]);
    const left = await chainsOf(kernel, NAT);
    expect(left).toEqual({
      ...OTHERS_NAT,
      "CNI-HOSTPORT-SETMARK": ["KUBE-MARK-MASQ"],
      MINE: ["KUBE-EXT-AAAA"],
      "KUBE-MARK-MASQ": ["no verdict"],
      "KUBE-EXT-AAAA": ["KUBE-MARK-MASQ", "KUBE-SVL-AAAA", "KUBE-SVC-AAAA"],
      "KUBE-SVC-AAAA": ["KUBE-SEP-BBBB"],
      "KUBE-SVL-AAAA": ["KUBE-SEP-BBBB"],
      "KUBE-SEP-BBBB": ["KUBE-MARK-MASQ", "no verdict"],
    });
  });

  it("stays if a rule in a base chain that is not one of kube-proxy's jumps uses it", async () => {
    await load(kernel, NAT, { ...NODE_NAT, OUTPUT: [[match, jump("KUBE-MARK-MASQ")], [jump("KUBE-SERVICES")]] });
    const [cleanup] = await removeIptablesChains(kernel, ["ip"]);
    expect(cleanup.kept).toEqual([{ chain: "KUBE-MARK-MASQ", user: "a rule of chain OUTPUT" }]);
    expect((await chainsOf(kernel, NAT))["OUTPUT"]).toEqual(["KUBE-MARK-MASQ"]);
  });

  it("stays if a verdict map uses it, and the rest is removed", async () => {
    await load(kernel, NAT, NODE_NAT);
    const set = { set: "mine", flags: 8, keyType: 7, keyLen: 4, dataType: 0xffffff00 };
    await kernel.commit([
      { op: "add", kind: "set", ...NAT, ...set },
      {
        op: "add",
        kind: "elements",
        ...NAT,
        set: "mine",
        elements: pack([{ key: "10.0.0.1", data: { verdict: "goto", chain: "KUBE-SVC-AAAA" } }]),
      },
    ]);
    const [cleanup] = await removeIptablesChains(kernel, ["ip"]);
    expect(cleanup.kept).toEqual([{ chain: "KUBE-SVC-AAAA", user: "something other than a rule" }]);
    const left = Object.keys(await chainsOf(kernel, NAT)).filter((chain) => isOwnChain("nat", chain));
    expect(left.toSorted()).toEqual(["KUBE-MARK-MASQ", "KUBE-SEP-BBBB", "KUBE-SVC-AAAA"]);
  });
});

describe("concurrent changes of the table", () => {
  it("a rule that was to be deleted is gone: the table is read again", async () => {
    await load(kernel, NAT, NODE_NAT);
    const other = kernel.asOther();
    kernel.beforeNext("commit", async () => {
      const [rule] = await other.rules(NAT, "PREROUTING");
      await other.commit([{ op: "delete", kind: "rule", ...NAT, chain: "PREROUTING", handle: rule.handle }]);
    });
    expect(await removeIptablesChains(kernel, ["ip"])).toMatchObject([{ chains: 10, jumps: 2 }]);
    expect(await chainsOf(kernel, NAT)).toEqual(OTHERS_NAT);
  });

  it("a new rule uses a chain: the chain stays", async () => {
    await load(kernel, NAT, NODE_NAT);
    const other = kernel.asOther();
    kernel.beforeNext("commit", async () => {
      const exprs = [jump("KUBE-MARK-MASQ")];
      await other.commit([{ op: "add", kind: "rule", ...NAT, chain: "CNI-HOSTPORT-MASQ", exprs }]);
    });
    const [cleanup] = await removeIptablesChains(kernel, ["ip"]);
    expect(cleanup).toMatchObject({ chains: 9, kept: [{ chain: "KUBE-MARK-MASQ" }] });
  });

  it("the reply is lost: deleted chains stay deleted", async () => {
    await load(kernel, NAT, NODE_NAT);
    kernel.loseReply();
    expect(await removeIptablesChains(kernel, ["ip"])).toEqual([]);
    expect(await chainsOf(kernel, NAT)).toEqual(OTHERS_NAT);
  });

  it("dumps are interrupted: they are repeated", async () => {
    await load(kernel, NAT, NODE_NAT);
    await kernel.tables();
    kernel.setLatency((action) => {
      if (action === "dump rules" && kernel.commits.length === 1) {
        kernel.setLatency(undefined);
        kernel.interruptDumps();
      }
    });
    expect(await removeIptablesChains(kernel, ["ip"])).toMatchObject([{ chains: 10 }]);
  });

  it("dumps are always interrupted: it fails with the kernel's error, and the table is unchanged", async () => {
    await load(kernel, NAT, NODE_NAT);
    const jumps = (op: Op): boolean => op.kind === "rule" && op.op === "delete";
    for (let i = 0; i < 100; i++) kernel.failNext({ when: jumps, errno: "ENOENT" });
    await expect(removeIptablesChains(kernel, ["ip"])).rejects.toMatchObject({ code: "refused" });
    expect(Object.keys(await chainsOf(kernel, NAT))).toHaveLength(Object.keys(NODE_NAT).length);
  });

  it("an error that another read cannot solve is not retried", async () => {
    await load(kernel, NAT, NODE_NAT);
    kernel.failNext({ when: (op) => op.kind === "rule", errno: "EPERM" });
    await expect(removeIptablesChains(kernel, ["ip"])).rejects.toMatchObject({ code: "refused", errno: "EPERM" });
    expect(await removeIptablesChains(kernel, ["ip"])).toHaveLength(1);
  });
});

import { describe, expect, test } from "vitest";
import { Hook, Priority } from "../../../../src/nft/kernel/constants.js";
import type { BaseChain, Expr, RuleInfo } from "../../../../src/nft/kernel/kernel.js";
import { checkHooks, type HookFacts, isProxysRule } from "../../../../src/migration/preflight/hooks.js";
import { type ForeignChain, readForeignChains } from "../../../../src/tools/explain/firewall/foreign-chains.js";
import { packetsOfAny } from "../../../../src/tools/explain/firewall/service-packets.js";
import { inspectFirewalls } from "../../../../src/tools/node-inspection.js";
import { FakeKernel } from "../../../fakes/fake-kernel.ts";
import { NO_MODE } from "./no-mode.ts";
import { type ChainWithRules, jump, tableWith, verdict } from "../../../support/operations.ts";

const accept = verdict("accept");
const FORWARD: BaseChain = { type: "filter", hook: Hook.forward, priority: 0, policy: "drop" };
const NAT: BaseChain = { type: "nat", hook: Hook.prerouting, priority: Priority.dstnat };
const isMet = (rule: RuleInfo): boolean => !isProxysRule(rule);

async function kernelWith(table: string, chains: Readonly<Record<string, ChainWithRules>>): Promise<FakeKernel> {
  const kernel = new FakeKernel();
  await kernel.commit(tableWith({ family: "ip", table }, chains));
  return kernel;
}

async function read(table: string, chains: Readonly<Record<string, ChainWithRules>>): Promise<ForeignChain[]> {
  return readForeignChains(await kernelWith(table, chains), ["ip", "ip6"], isMet);
}

const said = (facts: Partial<HookFacts>): string[] =>
  checkHooks({
    ...{ mode: NO_MODE, chains: [], legacyNat: [], bridges: [], interfaces: [] },
    ...{ firewalls: { problems: [] }, hasServices: true, ...facts },
  }).map(({ level, what }) => `${level}: ${what}`);

describe("rules that drop packets to services", () => {
  const inspected = async (chains: Readonly<Record<string, ChainWithRules>>): Promise<string[]> => {
    const kernel = await kernelWith("filter", chains);
    const served = { families: ["ip"], services: ["services"], packets: () => packetsOfAny(["ip"]) } as const;
    return said({
      hasServices: false,
      firewalls: await inspectFirewalls({ kernel, masqueradeBit: 14, isMet }, served),
    });
  };

  test("a policy that drops is a problem if only kube-proxy's rules accept, because they will be gone", async () => {
    const chains = {
      FORWARD: { base: FORWARD, rules: [[jump("KUBE-FORWARD")]] },
      "KUBE-FORWARD": { rules: [[accept]] },
    };
    expect(await inspected(chains)).toEqual([
      "problem: chain FORWARD (hook forward) of table ip filter drops packets to services: by policy",
    ]);
  });

  test("a policy that drops is no obstacle if another program's rule accepts, even in its own chain", async () => {
    const chains = {
      FORWARD: { base: FORWARD, rules: [[jump("KUBE-FORWARD")], [jump("FLANNEL-FWD")]] },
      "KUBE-FORWARD": {},
      "FLANNEL-FWD": { rules: [[accept]] },
    };
    expect(await inspected(chains)).toEqual([
      "ok: no other program's chains block services; their rules were not tried with packets to services",
    ]);
  });

  test("are problems", () => {
    const problem = {
      check: "firewalls",
      what: "chain f drops packets to default/web",
      remedy: "accept them",
    } as const;
    expect(said({ firewalls: { problems: [problem] } })).toEqual(["problem: chain f drops packets to default/web"]);
  });

  test("are not ruled out for services that were not checked, or if the result depends on unknown facts", () => {
    const check = {
      ...{ checked: 2, services: 3, unjudged: 1, unjudgedRule: "ip ttl 63 drop" },
      unread: ["ip big (5000 rules)"],
    };
    const gaps = (more: Partial<HookFacts>): string[] => said({ firewalls: { problems: [], check }, ...more });
    const [only, rule, unread] = [
      "note: other programs may drop packets to services: only 2 of 3 services were checked; ",
      "the result depends on facts that are not visible here, as in this rule: ip ttl 63 drop; ",
      "not read: ip big (5000 rules)",
    ];
    expect(gaps({})).toEqual([`${only}for 1 of 3 services ${rule}${unread}`]);
    expect(gaps({ hasServices: false })).toEqual([`${only}${rule}${unread}`]);
  });
});

describe("NAT", () => {
  test("does not include kube-proxy's own jumps", async () => {
    const chains = await read("nat", {
      PREROUTING: { base: NAT, rules: [[jump("KUBE-SERVICES")]] },
      "KUBE-SERVICES": { rules: [[accept]] },
    });
    expect(said({ chains })).toEqual(["ok: no other program's rules block services"]);
  });

  test("NAT of other programs is named with its owner", async () => {
    const chains = await read("nat", {
      PREROUTING: { base: NAT, rules: [[jump("CNI-HOSTPORT-DNAT")]] },
      "CNI-HOSTPORT-DNAT": { rules: [[accept]] },
    });
    expect(said({ chains })).toEqual([
      "note: chain PREROUTING of table ip nat (the CNI plug-in portmap, nat at prerouting, priority -100), which jumps to CNI-HOSTPORT-DNAT, sees packets before nft-proxier's rules",
    ]);
  });

  test("NAT of the older iptables is named, too", () => {
    expect(said({ legacyNat: [{ family: "ip", chains: ["DOCKER"] }] })).toEqual([
      "note: nat of iptables-legacy (ip) has chains of other programs (Docker: DOCKER), which may see packets before nft-proxier's rules",
    ]);
  });
});

test("does not include nft-proxier's own tables", async () => {
  for (const table of ["kube-proxy", "nft-proxier-handover", "nft-proxier-flowtable"]) {
    expect(await read(table, { "nat-prerouting": { base: NAT, rules: [[accept]] } })).toEqual([]);
  }
});

test("flowtables, bridges and Cilium are notes", async () => {
  const kernel = new FakeKernel();
  const ref = { family: "inet", table: "fast" } as const;
  const base: BaseChain = { ...FORWARD, policy: "accept" };
  await kernel.commit([
    { op: "add", kind: "table", ...ref },
    { op: "add", kind: "chain", ...ref, chain: "forward", base },
  ]);
  const exprs: Expr[] = [{ type: "flow_offload", flowtable: "f" }];
  kernel.rules = () => Promise.resolve([{ ...ref, chain: "forward", handle: 2n, exprs }]);
  const chains = await readForeignChains(kernel, ["ip", "ip6"]);
  const bridges = [
    { bridge: "cni0", setting: "net.bridge.bridge-nf-call-iptables", present: 0, command: "modprobe br_netfilter" },
  ];
  expect(said({ chains, bridges, interfaces: ["lo", "cilium_host"] })).toEqual([
    expect.stringMatching(/^note: table inet fast offloads connections to a flowtable/),
    expect.stringMatching(/^note: packets between ports of bridge cni0 skip/),
    expect.stringMatching(/^note: Cilium has interfaces on this node/),
  ]);
});

import { describe, expect, test } from "vitest";
import { Hook, Priority } from "../../../../src/nft/kernel/constants.js";
import type { BaseChain, RuleInfo } from "../../../../src/nft/kernel/kernel.js";
import { checkHooks, type HookFacts, isProxysRule } from "../../../../src/migration/preflight/hooks.js";
import { type ForeignChain, readForeignChains } from "../../../../src/tools/explain/firewall/foreign-chains.js";
import { packetsOfAny } from "../../../../src/tools/explain/firewall/service-packets.js";
import { inspectFirewalls } from "../../../../src/tools/node-inspection.js";
import { FakeKernel } from "../../../fakes/fake-kernel.ts";
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
    ...{ mode: { healthCheckRules: 0 }, chains: [], bridges: [] },
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

test("does not include nft-proxier's own tables", async () => {
  for (const table of ["kube-proxy", "nft-proxier-handover", "nft-proxier-flowtable"]) {
    expect(await read(table, { "nat-prerouting": { base: NAT, rules: [[accept]] } })).toEqual([]);
  }
});

test("a policy that drops packets to this node is a problem only if kube-proxy's rules accept health checks", async () => {
  const base: BaseChain = { type: "filter", hook: Hook.input, priority: 0, policy: "drop" };
  const chains = await read("filter", { INPUT: { base, rules: [] } });
  expect(said({ chains })).toEqual(["ok: no other program's rules block services"]);
  expect(said({ chains, mode: { healthCheckRules: 1 } })).toEqual([
    expect.stringMatching(/^problem: chain INPUT of table ip filter drops packets to this node by policy/),
  ]);
});

test("bridges whose packets skip the rules are notes", () => {
  const bridges = [
    { bridge: "cni0", setting: "net.bridge.bridge-nf-call-iptables", present: 0, command: "modprobe br_netfilter" },
  ];
  expect(said({ bridges })).toEqual([expect.stringMatching(/^note: packets between ports of bridge cni0 skip/)]);
});

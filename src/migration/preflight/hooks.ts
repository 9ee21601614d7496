/** Checks other programs' chains on netfilter's hooks that affect packets to services. */
import { counted } from "../../base/counted.js";
import { Hook, Priority } from "../../nft/kernel/constants.js";
import type { RuleInfo } from "../../nft/kernel/kernel.js";
import { IPTABLES_TABLES, isEntryChain, isOwnChain } from "../leftovers/iptables-names.js";
import type { IpFamily } from "../../base/ip.js";
import type { SkippingBridge } from "../../node/forwarding.js";
import type { ForeignChain } from "../../tools/explain/firewall/foreign-chains.js";
import type { FirewallInspection } from "../../tools/node-inspection.js";
import { type Finding, named, note, of, ok, problem, type Said } from "./finding.js";
import type { ModeFacts } from "./mode.js";

/** Whether a rule disappears with kube-proxy, because it jumps to its chains. */
export function isProxysRule({ table, exprs }: RuleInfo): boolean {
  const own = IPTABLES_TABLES.find((name) => name === table);
  return exprs.some((expr) => {
    if (own === undefined || expr.type !== "immediate" || !("verdict" in expr.data) || !("chain" in expr.data))
      return false;
    return isEntryChain(own, expr.data.chain) || isOwnChain(own, expr.data.chain);
  });
}

export interface HookFacts {
  readonly mode: ModeFacts;
  readonly chains: readonly ForeignChain[];
  /** Chains in nat of the older iptables that are not kube-proxy's, by family. */
  readonly legacyNat: readonly { readonly family: IpFamily; readonly chains: readonly string[] }[];
  readonly bridges: readonly SkippingBridge[];
  /** Names of network interfaces. */
  readonly interfaces: readonly string[];
  /** Effect of other programs' rules on packets to services. Undefined if the kernel was not asked. */
  readonly firewalls: FirewallInspection | undefined;
  /** Whether services are known. Otherwise, packets of any service were tried. */
  readonly hasServices: boolean;
}

export function checkHooks(facts: HookFacts): Finding[] {
  const { firewalls } = facts;
  const findings = [
    ...(firewalls?.problems ?? []).flatMap(({ check, what, remedy }) =>
      of("other programs", check, problem(what, remedy)),
    ),
    ...of("other programs", "input-policy", ...inputSaid(facts)),
    ...of("other programs", "nat-chains", ...natSaid(facts)),
    ...of("other programs", "flowtables", ...offloadSaid(facts.chains)),
    ...of("other programs", "bridges", ...facts.bridges.map(bridgeSaid)),
    ...of("other programs", "ebpf", ...ebpfSaid(facts.interfaces)),
    ...of("other programs", "firewalls", ...uncheckedSaid(facts)),
  ];
  if (findings.length > 0) return findings;
  const tried = "no other program's rules block services";
  const untried = "no other program's chains block services; their rules were not tried with packets to services";
  return of("other programs", "hooks", ok(facts.hasServices ? tried : untried));
}

/** The parts of the check that have no result. */
function uncheckedSaid({ firewalls, hasServices }: HookFacts): Said[] {
  if (firewalls?.check === undefined) return [];
  const { checked, services, unjudged, unjudgedRule = "", unread } = firewalls.check;
  const of = hasServices ? `for ${unjudged} of ${counted(services, "service")} ` : "";
  const gaps = [
    ...(checked < services ? [`only ${checked} of ${counted(services, "service")} were checked`] : []),
    ...(unjudged > 0
      ? [`${of}the result depends on facts that are not visible here, as in this rule: ${unjudgedRule}`]
      : []),
    ...(unread.length > 0 ? [`not read: ${unread.join(", ")}`] : []),
  ];
  return gaps.length === 0 ? [] : [note(`other programs may drop packets to services: ${gaps.join("; ")}`)];
}

/** kube-proxy's chain KUBE-NODEPORTS in filter accepts the health checks of load balancers. */
function inputSaid({ chains, mode }: HookFacts): Said[] {
  const dropping = chains.filter(({ base }) => base.hook === Hook.input && base.policy === "drop");
  return dropping.map(({ ref, chain }) => {
    const where = `chain ${chain} of table ${ref.family} ${ref.table} drops packets to this node by policy`;
    const remedy = "accept the services' healthCheckNodePorts there, and port 10256 if load balancers check it";
    if (mode.healthCheckRules > 0) {
      return problem(
        `${where}; kube-proxy's rules accept load balancers' health checks there, and nft-proxier removes them`,
        remedy,
      );
    }
    return note(
      `${where} unless a rule in it accepts them; health checks and endpoints on the node's own network need these packets`,
      remedy,
    );
  });
}

/**
 * The first NAT chain that rewrites decides. Chains with our priority run first, because they were registered before
 * ours.
 */
function natSaid({ chains, legacyNat }: HookFacts): Said[] {
  const first = chains.filter(
    ({ base, rules }) =>
      base.type === "nat" &&
      (base.hook === Hook.prerouting || base.hook === Hook.output) &&
      base.priority <= Priority.dstnat &&
      rules > 0,
  );
  const said = first.map(({ ref, chain, base, leadsTo }) => {
    const hook = base.hook === Hook.prerouting ? "prerouting" : "output";
    const to = leadsTo.length === 0 ? "" : `, which jumps to ${named(leadsTo, 3)},`;
    const about = [...softwareOf([ref.table, chain, ...leadsTo]), `nat at ${hook}`, `priority ${base.priority}`];
    return note(
      `chain ${chain} of table ${ref.family} ${ref.table} (${about.join(", ")})${to} sees packets before nft-proxier's rules`,
      `check it with \`nft list chain ${ref.family} ${ref.table} ${chain}\`; it is harmless if it rewrites only its own packets, such as host ports`,
    );
  });
  for (const { family, chains: names } of legacyNat) {
    if (names.length === 0) continue;
    const about = [...softwareOf(names), named(names, 3)].join(": ");
    said.push(
      note(
        `nat of iptables-legacy (${family}) has chains of other programs (${about}), which may see packets before nft-proxier's rules`,
      ),
    );
  }
  return said;
}

function offloadSaid(chains: readonly ForeignChain[]): Said[] {
  return chains
    .filter(({ offload }) => offload.length > 0)
    .map(({ ref, offload }) =>
      note(
        `table ${ref.family} ${ref.table} offloads connections to a flowtable (chain ${named(offload, 3)}), so they bypass the rules and keep their endpoint`,
      ),
    );
}

function bridgeSaid({ bridge, setting, present, command }: SkippingBridge): Said {
  return note(
    `packets between ports of bridge ${bridge} skip this node's rules (${setting}: ${present})`,
    `if pods are on this bridge, run \`${command}\`; otherwise a pod gets no answer from an endpoint on its own bridge`,
  );
}

/** Interfaces that Cilium creates. */
const CILIUM = ["cilium_host", "cilium_net"];

function ebpfSaid(interfaces: readonly string[]): Said[] {
  if (!CILIUM.some((name) => interfaces.includes(name))) return [];
  return [
    note(
      "Cilium has interfaces on this node; if it replaces kube-proxy (kubeProxyReplacement), its programs handle packets before any rule",
      "run `cilium status`; if KubeProxyReplacement is on, this node needs neither kube-proxy nor nft-proxier",
    ),
  ];
}

/** Recognized by the names that programs give their tables and chains. */
const SOFTWARE: readonly (readonly [name: RegExp, software: string])[] = [
  [/^cali-/, "Calico"],
  [/^CILIUM_|^OLD_CILIUM/, "Cilium"],
  [/^DOCKER/, "Docker"],
  [/^CNI-HOSTPORT|^CNI-DN-|^cni_hostport|^hostports$/, "the CNI plug-in portmap"],
  [/^FLANNEL|^flannel/, "flannel"],
  [/^firewalld$|_public$|_ZONES/, "firewalld"],
  [/^ISTIO_|^istio/, "Istio"],
  [/^LIBVIRT/, "libvirt"],
  [/^NETAVARK|^netavark/, "Podman"],
  [/^KUBE-ROUTER/, "kube-router"],
  [/^ANTREA/, "Antrea"],
  [/^ufw/, "ufw"],
];

/** Returns the owners that names reveal. */
function softwareOf(names: readonly string[]): string[] {
  return SOFTWARE.flatMap(([pattern, software]) => (names.some((name) => pattern.test(name)) ? [software] : []));
}

/** Checks other programs' chains on netfilter's hooks that affect packets to services. */
import { counted } from "../../base/counted.js";
import type { FirewallInspection } from "./node-inspection.js";
import { FLOWTABLE_REF } from "../../flowtable/operations.js";
import { Hook, Priority, TableFlag } from "../../netlink/constants.js";
import type { BaseChain, Expr, Kernel, RuleInfo, TableRef } from "../../netlink/kernel.js";
import { IPTABLES_TABLES, isEntryChain, isOwnChain } from "../leftovers/iptables-names.js";
import type { IpFamily } from "../../base/ip.js";
import { type DroppingChain, droppingText, keptRemedy, type SkippingBridge } from "../../node/forwarding.js";
import { HANDOVER_TABLE, TABLE_NAME } from "../../ruleset/names.js";
import { type Finding, named, note, of, ok, problem, type Said } from "./finding.js";
import { isAfterDnat, isBeforeMasquerading, type MarkUse, markUse } from "./marks.js";
import { isOtherMode, type ModeFacts, modesOf } from "./mode.js";

/**
 * A base chain of another program, with the chains that its rules lead to. kube-proxy's chains and jumps are excluded.
 */
export interface ForeignChain {
  readonly ref: TableRef;
  readonly chain: string;
  readonly base: BaseChain;
  /** Rules in it and in the chains that it leads to. */
  readonly rules: number;
  /** Whether some rule can accept a packet. False if only the policy decides. */
  readonly accepts: boolean;
  /** Chains with a rule that exempts packets from tracking. */
  readonly notrack: readonly string[];
  /** Chains with a rule that makes connections bypass the hooks (flowtables). */
  readonly offload: readonly string[];
  readonly leadsTo: readonly string[];
  /** How rules use the packet mark, with the chain of each. */
  readonly marks: readonly (MarkUse & { readonly chain: string })[];
}

/** nft-proxier's own tables. kube-proxy's table has the same name as one of them. */
const OURS: readonly string[] = [TABLE_NAME, HANDOVER_TABLE, FLOWTABLE_REF.table];

/** Maximum number of chains to read from one base chain. More would take too long. */
const MOST_CHAINS = 500;

/** Rejects with KernelError. */
export async function readForeignChains(kernel: Kernel, families: readonly IpFamily[]): Promise<ForeignChain[]> {
  const found: ForeignChain[] = [];
  for (const { family, table, flags } of await kernel.tables()) {
    const concerned = family === "inet" || ((family === "ip" || family === "ip6") && families.includes(family));
    if (!concerned || OURS.includes(table) || (flags & TableFlag.dormant) !== 0) continue;
    const ref = { family, table };
    for (const { chain, base } of await kernel.chains(ref)) {
      if (base !== undefined) found.push(await new Walk(kernel, ref).from(chain, base));
    }
  }
  return found;
}

/** Walks the rules that packets meet from a base chain on. */
class Walk {
  readonly #kernel: Kernel;
  readonly #ref: TableRef;
  #rules = 0;
  #accepts = false;
  readonly #notrack = new Set<string>();
  readonly #offload = new Set<string>();
  readonly #marks: (MarkUse & { readonly chain: string })[] = [];

  constructor(kernel: Kernel, ref: TableRef) {
    this.#kernel = kernel;
    this.#ref = ref;
  }

  async from(chain: string, base: BaseChain): Promise<ForeignChain> {
    const seen = new Set([chain]);
    for (const one of seen) {
      if (seen.size > MOST_CHAINS) {
        // The unread rules may accept.
        this.#accepts = true;
        break;
      }
      for (const rule of await this.#kernel.rules(this.#ref, one)) {
        // Iterating a Set also visits elements added meanwhile.
        for (const reached of this.#record(rule)) seen.add(reached);
      }
    }
    seen.delete(chain);
    const lists = {
      ...{ notrack: [...this.#notrack], offload: [...this.#offload] },
      ...{ leadsTo: [...seen], marks: this.#marks },
    };
    return { ref: this.#ref, chain, base, rules: this.#rules, accepts: this.#accepts, ...lists };
  }

  /** Records one rule. Returns the chains that it leads to. */
  #record({ chain, exprs }: RuleInfo): string[] {
    const reached: string[] = [];
    let accepts = false;
    for (const expr of exprs) {
      if (expr.type === "immediate" && "verdict" in expr.data) {
        const { data } = expr;
        if ("chain" in data) {
          if (this.#isProxys(data.chain)) return [];
          reached.push(data.chain);
        } else if (data.verdict === "accept" || data.verdict === "queue") accepts = true;
      }
      // The verdicts of a map are not looked up, so any may accept.
      if (expr.type === "lookup" && expr.dreg === 0) accepts = true;
      if (isNotrack(expr)) this.#notrack.add(chain);
      if (expr.type === "flow_offload") this.#offload.add(chain);
    }
    this.#rules++;
    this.#accepts ||= accepts;
    const use = markUse(exprs);
    if (use !== undefined) this.#marks.push({ chain, ...use });
    return reached;
  }

  /** Whether a chain disappears with kube-proxy. */
  #isProxys(chain: string): boolean {
    const table = IPTABLES_TABLES.find((name) => name === this.#ref.table);
    return table !== undefined && (isEntryChain(table, chain) || isOwnChain(table, chain));
  }
}

/** nft's own statement, or an iptables target: CT (with --notrack; it may set a zone instead), or the older NOTRACK. */
function isNotrack(expr: Expr): boolean {
  if (expr.type === "notrack") return true;
  if (expr.type !== "opaque" || expr.name !== "target") return false;
  return /^(CT|NOTRACK)$/.test(xtName(expr.data));
}

/** NFTA_TARGET_NAME, the first attribute of nft_compat's data (linux/netfilter/nf_tables_compat.h). */
function xtName(data: Uint8Array): string {
  return Buffer.from(data.subarray(4, 36)).toString("latin1").replace(/\0.*$/s, "");
}

export interface HookFacts {
  readonly mode: ModeFacts;
  readonly chains: readonly ForeignChain[];
  /** Chains in nat of the older iptables that are not kube-proxy's, by family. */
  readonly legacyNat: readonly { readonly family: IpFamily; readonly chains: readonly string[] }[];
  /** Chains that drop forwarded packets by policy. */
  readonly dropping: readonly DroppingChain[];
  readonly bridges: readonly SkippingBridge[];
  /** Names of network interfaces. */
  readonly interfaces: readonly string[];
  /** nftables.masqueradeBit. */
  readonly masqueradeBit: number;
  /** Effect of other programs' rules on packets to services. Undefined if services were not checked. */
  readonly firewalls: FirewallInspection | undefined;
}

export function checkHooks(given: HookFacts): Finding[] {
  const forwards = given.dropping.map((chain) => ({ name: nameOf(chain), said: forwardSaid(chain, given) }));
  const { facts, twice } = withoutTwice(given, forwards);
  const findings = [
    ...of("other programs", "forward-policy", ...forwards.flatMap(({ name, said }) => (twice.has(name) ? [] : [said]))),
    ...of("other programs", "input-policy", ...inputSaid(facts)),
    ...of("other programs", "nat-chains", ...natSaid(facts)),
    ...of("other programs", "notrack", ...facts.chains.flatMap(notrackSaid)),
    ...of("other programs", "masquerade-bit", ...facts.chains.flatMap((chain) => markSaid(chain, facts.masqueradeBit))),
    ...of("other programs", "flowtables", ...offloadSaid(facts.chains)),
    ...of("other programs", "bridges", ...facts.bridges.map(bridgeSaid)),
    ...of("other programs", "ebpf", ...ebpfSaid(facts.interfaces)),
    ...of("other programs", "firewalls", ...firewallSaid(facts)),
  ];
  if (findings.length > 0) return findings;
  const tried = "no other program's rules block services";
  const untried = "no other program's chains block services; their rules were not tried with packets to services";
  return of("other programs", "hooks", ok(facts.firewalls === undefined ? untried : tried));
}

function nameOf({ family, table, chain }: DroppingChain): string {
  return `${family} ${table} ${chain}`;
}

/**
 * A chain that drops by policy is found both by its policy and by trying packets to services. It is reported once: by
 * its policy if that affects all packets, otherwise by the services.
 */
function withoutTwice(
  facts: HookFacts,
  forwards: readonly { readonly name: string; readonly said: Said }[],
): { readonly facts: HookFacts; readonly twice: ReadonlySet<string> } {
  const { firewalls } = facts;
  if (firewalls === undefined) return { facts, twice: new Set() };
  const forAll = new Set(forwards.filter(({ said }) => said.level === "problem").map(({ name }) => name));
  const problems = firewalls.problems.filter(({ policyOf }) => policyOf === undefined || !forAll.has(policyOf));
  const twice = new Set(problems.flatMap(({ policyOf }) => policyOf ?? []));
  return { facts: { ...facts, firewalls: { ...firewalls, problems } }, twice };
}

/** If kube-proxy has rules in iptables, a rule that drops may be one that disappears with them. */
function firewallSaid({ firewalls, mode }: HookFacts): Said[] {
  if (firewalls === undefined) return [];
  const { problems, check } = firewalls;
  const level = isOtherMode(modesOf(mode)) ? note : problem;
  const said = problems.map(({ what, remedy }) => level(what, remedy));
  if (check === undefined) return said;
  const { checked, services, unjudged, unjudgedRule = "", unread } = check;
  const gaps = [
    ...(checked < services ? [`only ${checked} of ${counted(services, "service")} were checked`] : []),
    ...(unjudged > 0
      ? [
          `for ${unjudged} of ${counted(services, "service")} the result depends on facts that are not visible here, as in this rule: ${unjudgedRule}`,
        ]
      : []),
    ...(unread.length > 0 ? [`not read: ${unread.join(", ")}`] : []),
  ];
  if (gaps.length === 0) return said;
  return [...said, note(`other programs may drop packets to services: ${gaps.join("; ")}`)];
}

/**
 * kube-proxy's iptables mode accepts its own traffic in FORWARD. Without it, traffic that no other rule accepts is
 * dropped.
 */
function forwardSaid(found: DroppingChain, { chains, mode }: HookFacts): Said {
  const { family, table, chain, command, hasRules } = found;
  const own = chains.find((each) => each.ref.family === family && each.ref.table === table && each.chain === chain);
  const remedy = keptRemedy(command);
  if (hasRules === false || (own !== undefined && !own.accepts)) return problem(droppingText(found, true), remedy);
  const before = isOtherMode(modesOf(mode))
    ? "; kube-proxy's rules there accept its own packets, and nft-proxier has no rules there"
    : "";
  return note(
    `${droppingText(found, false)} unless a rule in it accepts them${before}`,
    `if services do not work, ${remedy}`,
  );
}

/** kube-proxy's chain KUBE-NODEPORTS in filter accepts the health checks of load balancers. */
function inputSaid({ chains, mode }: HookFacts): Said[] {
  const dropping = chains.filter(({ base }) => base.hook === Hook.input && base.policy === "drop");
  return dropping.map(({ ref, chain, accepts }) => {
    const where = `chain ${chain} of table ${ref.family} ${ref.table} drops packets to this node by policy`;
    const remedy = "accept the services' healthCheckNodePorts there, and port 10256 if load balancers check it";
    if (mode.healthCheckRules > 0) {
      return problem(
        `${where}; kube-proxy's rules accept load balancers' health checks there, and nft-proxier removes them`,
        remedy,
      );
    }
    return note(
      `${where}${accepts ? " unless a rule in it accepts them" : ""}; health checks and endpoints on the node's own network need these packets`,
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

function notrackSaid({ ref, chain, base, notrack }: ForeignChain): Said[] {
  if (notrack.length === 0 || base.priority > Priority.dstnat) return [];
  const by = softwareOf([ref.table, ...notrack]);
  const about = [...by, `chain ${named(notrack, 3)}`, ...(notrack.includes(chain) ? [] : [`from ${chain}`])];
  return [
    note(
      `table ${ref.family} ${ref.table} exempts packets from connection tracking (${about.join(", ")}), so these are not translated to endpoints`,
      `check it with \`nft list table ${ref.family} ${ref.table}\`; it is harmless for packets that it serves itself, as NodeLocal DNSCache does`,
    ),
  ];
}

/** Translated connections whose packets have the bit are masqueraded at postrouting, whichever program has set it. */
function markSaid({ ref, chain: from, base, marks }: ForeignChain, bit: number): Said[] {
  const value = (1 << bit) >>> 0;
  const chainsThat = (does: (use: MarkUse) => number): string[] => [
    ...new Set(marks.filter((use) => (does(use) & value) !== 0).map(({ chain }) => chain)),
  ];
  const about = (chains: readonly string[]): string => {
    const led = chains.includes(from) ? [] : [`from ${from}`];
    return [...softwareOf([ref.table, ...chains]), `chain ${named(chains, 3)}`, ...led].join(", ");
  };
  const name = `bit ${bit} of the packet mark (0x${value.toString(16)})`;
  const where = `rules of table ${ref.family} ${ref.table}`;
  const another = "set nftables.masqueradeBit to a bit that no program on this node uses";
  const sets = isBeforeMasquerading(base) ? chainsThat((use) => use.sets) : [];
  const clears =
    isBeforeMasquerading(base) && isAfterDnat(base) ? chainsThat(({ sets, clears }) => clears & ~sets) : [];
  const tests = chainsThat((use) => use.tests);
  const said: Said[] = [];
  if (sets.length > 0) {
    said.push(
      problem(
        `${where} set ${name} (${about(sets)}), so nft-proxier would masquerade the service connections that they mark`,
        another,
      ),
    );
  }
  if (clears.length > 0) {
    const then = "packets to services that pass these rules are not masqueraded";
    said.push(problem(`${where} overwrite ${name} (${about(clears)}), so ${then}`, another));
  }
  if (tests.length > 0 && said.length === 0) {
    const fine = `no action is needed if they look for kube-proxy's packets, as flannel does; otherwise ${another}`;
    said.push(note(`${where} read ${name}, which nft-proxier sets (${about(tests)})`, fine));
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

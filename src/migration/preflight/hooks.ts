/** Checks what other programs do to packets to services. */
import { counted } from "../../base/counted.js";
import { Hook } from "../../nft/kernel/constants.js";
import type { RuleInfo } from "../../nft/kernel/kernel.js";
import { IPTABLES_TABLES, isOwnChain } from "../leftovers/iptables-names.js";
import { jumpTarget } from "../jump-target.js";
import type { SkippingBridge } from "../../node/forwarding.js";
import type { ForeignChain } from "../../tools/explain/firewall/foreign-chains.js";
import type { FirewallInspection } from "../../tools/node-inspection.js";
import { type Finding, note, of, ok, problem, type Said } from "./finding.js";
import type { ModeFacts } from "./mode.js";

/** Whether a rule disappears with kube-proxy, because it jumps to its chains. */
export function isProxysRule(rule: RuleInfo): boolean {
  const own = IPTABLES_TABLES.find((name) => name === rule.table);
  const target = jumpTarget(rule);
  return own !== undefined && target !== undefined && isOwnChain(own, target);
}

export interface HookFacts {
  readonly mode: Pick<ModeFacts, "healthCheckRules">;
  readonly chains: readonly ForeignChain[];
  readonly bridges: readonly SkippingBridge[];
  /** Effect of other programs' rules on packets to services. Undefined if the kernel was not asked. */
  readonly firewalls: FirewallInspection | undefined;
  /** Whether services are known. Otherwise, packets of any service were tried. */
  readonly hasServices: boolean;
}

export function checkHooks(facts: HookFacts): Finding[] {
  const { firewalls } = facts;
  const findings = [
    ...(firewalls?.problems ?? []).flatMap(({ check = "firewalls", what, remedy }) =>
      of("other programs", check, [problem(what, remedy)]),
    ),
    ...of("other programs", "input-policy", inputSaid(facts)),
    ...of("other programs", "bridges", facts.bridges.map(bridgeSaid)),
    ...of("other programs", "firewalls", uncheckedSaid(facts)),
  ];
  if (findings.length > 0) return findings;
  const tried = "no other program's rules block services";
  const untried = "no other program's chains block services; their rules were not tried with packets to services";
  return of("other programs", "hooks", [ok(facts.hasServices ? tried : untried)]);
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
  if (mode.healthCheckRules === 0) return [];
  const dropping = chains.filter(({ base }) => base.hook === Hook.input && base.policy === "drop");
  return dropping.map(({ ref, chain }) =>
    problem(
      `chain ${chain} of table ${ref.family} ${ref.table} drops packets to this node by policy; kube-proxy's rules accept load balancers' health checks there, and nft-proxier removes them`,
      "accept the services' healthCheckNodePorts there, and port 10256 if load balancers check it",
    ),
  );
}

function bridgeSaid({ bridge, setting, present, command }: SkippingBridge): Said {
  return note(
    `packets between ports of bridge ${bridge} skip this node's rules (${setting}: ${present})`,
    `if pods are on this bridge, run \`${command}\`; otherwise a pod gets no answer from an endpoint on its own bridge`,
  );
}

/**
 * Checks this node for obstacles that keep packets from services although the rules are active. Runs when a status is requested.
 */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { someOf } from "../base/counted.js";
import { checkFirewalls, type ClearingRule, type ServicesObstacle } from "./explain/firewall/firewall-check.js";
import type { EndedBy } from "./explain/machine/hooks.js";
import { readForeignChains } from "./explain/firewall/foreign-chains.js";
import { ANOTHER_BIT, bitText, settingProblems } from "./explain/firewall/masquerade-bit.js";
import type { ServedPackets } from "./explain/firewall/service-packets.js";
import type { RoutedKernel } from "./explain/world/routing.js";
import type { ProxyConfig } from "../config/proxy-config.js";
import type { RuleInfo } from "../nft/kernel/kernel.js";
import { reasonOf } from "../base/unknown.js";
import {
  acceptCommand,
  droppingText,
  findLegacyForward,
  keptRemedy,
  type LegacyForwardOptions,
  missingPodBridge,
} from "../node/forwarding.js";
import { conntrackFill, type ConntrackFill, conntrackFull, forwardingOff } from "../node/packet-settings.js";
import { few } from "../observe/few-problems.js";
import type { ConcernedService, FirewallStatus, StatusProblem } from "../observe/status-report.js";

export interface NodeInspection {
  /** Absent if no connection tracker is loaded. */
  readonly conntrack?: ConntrackFill;
  /**
   * Absent if no other program has rules that service packets pass, or if the rules cannot be read, which is reported
   * as a problem.
   */
  readonly firewalls?: FirewallStatus;
  readonly problems: readonly StatusProblem[];
}

interface NodeInspectionOptions extends Pick<LegacyForwardOptions, "legacy" | "root"> {
  readonly kernel: RoutedKernel;
  /** Bit of the packet mark that our rules set, 0 to 31. */
  readonly masqueradeBit: number;
  /** Whether packets meet a rule. By default, they meet all. */
  readonly isMet?: (rule: RuleInfo) => boolean;
}

interface NodeWatchOptions extends NodeInspectionOptions {
  readonly config: Pick<ProxyConfig, "detectLocalMode" | "detectLocal">;
}

/** Maximum share of time for firewall checks. A more recent result is repeated. */
const SHARE = 0.1;

/** Names of this node's interfaces. Empty if they cannot be read. */
export async function interfaceNames(root = "/"): Promise<string[]> {
  return readdir(join(root, "sys/class/net")).catch(() => []);
}

export class NodeWatch {
  #firewalls: { readonly result: Promise<FirewallInspection>; goodUntil: number } | undefined;

  constructor(private readonly options: NodeWatchOptions) {}

  /** Never rejects. */
  async inspect(served: ServedPackets): Promise<NodeInspection> {
    const [conntrack, forwarding, { problems, check }, interfaces] = await Promise.all([
      conntrackFill(),
      Promise.all(served.families.map((family) => forwardingOff(family))),
      this.#inspectFirewalls(served),
      interfaceNames(),
    ]);
    const bridge = missingPodBridge(this.options.config, interfaces);
    const full = conntrackFull(conntrack);
    return {
      conntrack,
      firewalls: check,
      problems: [
        ...forwarding.filter((problem) => problem !== undefined),
        ...problems.map(({ check: _, ...problem }) => problem),
        ...(bridge === undefined ? [] : [bridge]),
        ...(full === undefined ? [] : [full]),
      ],
    };
  }

  #inspectFirewalls(served: ServedPackets): Promise<FirewallInspection> {
    const known = this.#firewalls;
    if (known !== undefined && performance.now() < known.goodUntil) return known.result;
    const from = performance.now();
    const inspection = { result: inspectFirewalls(this.options, served), goodUntil: Infinity };
    this.#firewalls = inspection;
    void inspection.result.finally(() => {
      const now = performance.now();
      inspection.goodUntil = now + (now - from) / SHARE;
    });
    return inspection.result;
  }
}

interface FirewallProblem extends StatusProblem {
  /** The check of `preflight`. Default "firewalls". */
  readonly check?: "forward-policy" | "firewalls" | "masquerade-bit";
}

export interface FirewallInspection {
  readonly problems: readonly FirewallProblem[];
  readonly check?: FirewallStatus;
}

/** Never rejects. */
export async function inspectFirewalls(
  { kernel, legacy, root, masqueradeBit, isMet }: NodeInspectionOptions,
  { families, services, packets }: ServedPackets,
): Promise<FirewallInspection> {
  try {
    const older = await findLegacyForward({ legacy, families, root });
    const setting = settingProblems(await readForeignChains(kernel, families, isMet), masqueradeBit);
    const ownMark = (1 << masqueradeBit) >>> 0;
    const { obstacles, clearing, ...check } = await checkFirewalls({ kernel, services, packets, ownMark, isMet });
    const legacyProblems: FirewallProblem[] = [];
    const unread = [...check.unread];
    for (const found of older) {
      const where = `${found.table}, whose chain FORWARD drops by policy and has rules that cannot be read`;
      const problem = { what: droppingText(found), remedy: keptRemedy(found.command) };
      if (found.hasRules === false) legacyProblems.push({ check: "forward-policy", ...problem });
      else unread.push(where);
    }
    const checked = check.services > 0 || unread.length > 0;
    const changing = clearing.map((rule) => clearingProblem(rule, masqueradeBit));
    const problems = [
      ...legacyProblems,
      ...few(obstacles.map(firewallProblem), DROPPING, LISTS),
      ...few([...changing, ...setting], CHANGING, LISTS),
    ];
    return { problems, check: checked ? { ...check, unread } : undefined };
  } catch (error) {
    const remedy = "run `nft list ruleset` to see what other programs drop";
    return {
      problems: [{ check: "firewalls", what: `other programs' tables cannot be read: ${reasonOf(error)}`, remedy }],
    };
  }
}

/** Maximum number of services to name for one obstacle. */
const NAMED = 3;
const DROPPING = ["rule drops packets to services", "rules drop packets to services"] as const;
const CHANGING = [
  "rule changes the mark of packets to services",
  "rules change the mark of packets to services",
] as const;
const LISTS = "run `nft list ruleset` to see them";

/** The named services, without the address. */
function concernsOf(services: readonly string[]): ConcernedService[] {
  return services.slice(0, NAMED).map((text) => ({ service: text.replace(/ .*/, "") }));
}

/** "chain post (hook postrouting) of table ip other". */
function chainText({ ref, chain, hook }: EndedBy): string {
  return `chain ${chain} (hook ${hook}) of table ${ref.family} ${ref.table}`;
}

function clearingProblem(found: ClearingRule, bit: number): FirewallProblem {
  const { rule = "", services } = found;
  const packets = `packets to ${someOf(services, NAMED)}`;
  const then = `nft-proxier does not masquerade ${packets} that they match, so answers of endpoints on other nodes bypass this node, and the clients get no connection`;
  const what = `rules of ${chainText(found)} overwrite ${bitText(bit)}, such as ${rule}: ${then}`;
  const remedy = `change that rule, or ${ANOTHER_BIT}`;
  return { check: "masquerade-bit", what, remedy, concerns: concernsOf(services) };
}

function firewallProblem(found: ServicesObstacle): FirewallProblem {
  const { ref, chain, hook, rule, verdict, direction, except, pods, services } = found;
  const drops = verdict === "drop" ? "drops" : "rejects";
  const whose = direction === "original" ? "packets to" : "replies of";
  const why = rule === undefined ? "by policy" : `by rule ${rule}`;
  const where = direction === "original" ? "from" : "to";
  const whom =
    pods !== undefined ? `pods (${someOf(pods, NAMED)})` : except && `every interface but ${someOf(except, NAMED)}`;
  const of = whom === undefined ? "" : ` ${where} ${whom}`;
  const what = `${chainText(found)} ${drops} ${whose} ${someOf(services, NAMED)}${of}: ${why}`;
  // Before the translation, a rule can recognize a service's packet only by its address.
  const remedy =
    hook === "prerouting" && direction === "original"
      ? "accept the services' addresses in that firewall's configuration"
      : keptRemedy(acceptCommand(ref, chain));
  const check = rule === undefined && hook === "forward" ? "forward-policy" : "firewalls";
  return { check, what, remedy, concerns: concernsOf(services) };
}

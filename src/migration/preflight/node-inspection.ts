/**
 * Checks this node for obstacles that keep packets from services although the rules are active. Runs when a status is requested.
 */
import { counted } from "../../base/counted.js";
import { FAMILY_NAMES } from "../../base/ip-families.js";
import { checkFirewalls, type ServicesObstacle } from "../../tools/explain/firewall/firewall-check.js";
import type { ServicePacket } from "../../tools/explain/firewall/service-packets.js";
import type { RoutedKernel } from "../../tools/explain/world/routing.js";
import { handoverLeft } from "../handover/handover.js";
import type { Kernel } from "../../netlink/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import { reasonOf } from "../../base/unknown.js";
import {
  acceptCommand,
  type DroppingChain,
  droppingText,
  findLegacyForward,
  keptRemedy,
  type LegacyForwardOptions,
} from "../../node/forwarding.js";
import { conntrackFill, type ConntrackFill, conntrackFull, forwardingOff } from "../../node/packet-settings.js";
import type { FirewallStatus, StatusProblem } from "../../observe/status-report.js";

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

/** The served services, as packets that must pass. */
export interface ServedPackets {
  /** Families that have endpoints. */
  readonly families: readonly IpFamily[];
  /** "namespace/name" of all services. */
  readonly services: Iterable<string>;
  readonly packets: (service: string) => Iterable<ServicePacket>;
}

interface NodeInspectionOptions {
  readonly kernel: RoutedKernel;
  /** Reads the older iptables. Absent if they are not checked. */
  readonly legacy?: LegacyForwardOptions["legacy"];
  /** Bit of the packet mark that our rules set, 0 to 31. */
  readonly masqueradeBit: number;
}

/** Maximum share of time for firewall checks. A more recent result is repeated. */
const SHARE = 0.1;

export class NodeWatch {
  readonly #options: NodeInspectionOptions;
  #firewalls: { readonly result: Promise<FirewallInspection>; goodUntil: number } | undefined;

  constructor(options: NodeInspectionOptions) {
    this.#options = options;
  }

  /** Never rejects. */
  async inspect(served: ServedPackets): Promise<NodeInspection> {
    const { kernel } = this.#options;
    const [conntrack, forwarding, { problems, check }, handovers] = await Promise.all([
      conntrackFill(),
      Promise.all(served.families.map((family) => forwardingOff(family))),
      this.#inspectFirewalls(served),
      handoverProblems(kernel),
    ]);
    const full = conntrackFull(conntrack);
    return {
      conntrack,
      firewalls: check,
      problems: [
        ...forwarding.filter((problem) => problem !== undefined),
        ...problems.map(({ policyOf, ...problem }) => problem),
        ...handovers,
        ...(full === undefined ? [] : [full]),
      ],
    };
  }

  #inspectFirewalls(served: ServedPackets): Promise<FirewallInspection> {
    const known = this.#firewalls;
    if (known !== undefined && performance.now() < known.goodUntil) return known.result;
    const from = performance.now();
    const inspection = { result: inspectFirewalls(this.#options, served), goodUntil: Infinity };
    this.#firewalls = inspection;
    void inspection.result.finally(() => {
      const now = performance.now();
      inspection.goodUntil = now + (now - from) / SHARE;
    });
    return inspection.result;
  }
}

/** Reports copies that `handover` left. Never rejects: an unreadable kernel is reported elsewhere. */
export async function handoverProblems(kernel: Kernel): Promise<StatusProblem[]> {
  const problems = Object.entries(FAMILY_NAMES).map(async ([family, name]): Promise<StatusProblem[]> => {
    const left = await handoverLeft(kernel, family as IpFamily).catch(() => undefined);
    if (left === undefined) return [];
    const remedy = "run `nft-proxier handover --remove`; the next start also removes it";
    if (left === 0)
      return [{ what: `an expired handover copy of the ${name} rules exists; it serves no packets`, remedy }];
    const seconds = Math.ceil(left / 1000);
    return [
      {
        what: `a handover copy of the ${name} rules serves packets that no other rules serve, for another ${seconds}s`,
        remedy,
      },
    ];
  });
  return (await Promise.all(problems)).flat();
}

interface FirewallProblem extends StatusProblem {
  /** The chain of the policy: "ip filter FORWARD". Absent if a rule drops the packets. */
  readonly policyOf?: string;
}

export interface FirewallInspection {
  readonly problems: readonly FirewallProblem[];
  readonly check?: FirewallStatus;
}

/** Never rejects. */
export async function inspectFirewalls(
  { kernel, legacy, masqueradeBit }: NodeInspectionOptions,
  { families, services, packets }: ServedPackets,
): Promise<FirewallInspection> {
  try {
    const older = await findLegacyForward({ legacy, families });
    const ownMark = (1 << masqueradeBit) >>> 0;
    const { obstacles, ...check } = await checkFirewalls({ kernel, services, packets, ownMark });
    const legacyProblems = older.filter(({ hasRules }) => hasRules === false).map(legacyProblem);
    const unread = [
      ...check.unread,
      ...older.flatMap(({ table, hasRules }) =>
        hasRules === false ? [] : [`${table}, whose chain FORWARD drops by policy and has rules that cannot be read`],
      ),
    ];
    const checked = check.services > 0 || unread.length > 0;
    const problems = [...legacyProblems, ...firewallProblems(obstacles)];
    return { problems, check: checked ? { ...check, unread } : undefined };
  } catch (error) {
    const remedy = "run `nft list ruleset` to see what other programs drop";
    return { problems: [{ what: `other programs' tables cannot be read: ${reasonOf(error)}`, remedy }] };
  }
}

function legacyProblem(found: DroppingChain): StatusProblem {
  return { what: droppingText(found, true), remedy: keptRemedy(found.command) };
}

/** Maximum number of services to name for one obstacle, and of obstacles to report. */
const NAMED = 3;
const MOST_OBSTACLES = 10;

function firewallProblems(obstacles: readonly ServicesObstacle[]): FirewallProblem[] {
  const told: FirewallProblem[] = obstacles.slice(0, MOST_OBSTACLES).map(firewallProblem);
  const more = obstacles.length - told.length;
  if (more > 0)
    told.push({
      what: counted(more, "more rule drops packets of services", "more rules drop packets of services"),
      remedy: "run `nft list ruleset` to see them",
    });
  return told;
}

function firewallProblem({
  ref,
  chain,
  hook,
  rule,
  verdict,
  direction,
  except,
  services,
}: ServicesObstacle): FirewallProblem {
  const { family, table } = ref;
  const drops = verdict === "drop" ? "drops" : "rejects";
  const whose = direction === "original" ? "packets to" : "replies of";
  const more = services.length - NAMED;
  const names = services.slice(0, NAMED).join(", ") + (more > 0 ? ` and ${counted(more, "more service")}` : "");
  const why = rule === undefined ? "by policy" : `by rule ${rule}`;
  const where = direction === "original" ? "from" : "to";
  const but = except === undefined ? "" : ` ${where} every interface but ${except.slice(0, NAMED).join(", ")}`;
  const what = `chain ${chain} (hook ${hook}) of table ${family} ${table} ${drops} ${whose} ${names}${but}: ${why}`;
  // Before the translation, a rule can recognize a service's packet only by its address.
  const remedy =
    hook === "prerouting" && direction === "original"
      ? "accept the services' addresses in that firewall's configuration"
      : keptRemedy(acceptCommand(ref, chain));
  const concerns = services.slice(0, NAMED).map((service) => ({ service }));
  return { what, remedy, concerns, ...(rule === undefined && { policyOf: `${family} ${table} ${chain}` }) };
}

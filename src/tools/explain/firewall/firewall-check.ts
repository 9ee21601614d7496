/**
 * Checks whether other programs' rules drop services' packets. It runs their base chains on the first packet to an
 * endpoint and on the endpoint's reply. The sender is unknown, so a finding applies to all clients, or to all of the
 * interfaces by which pods and clients are known to come.
 */
import type { FirewallStatus } from "../../../observe/status-report.js";
import { TimeSlice } from "../../../base/time-slice.js";
import { TableFlag } from "../../../nft/kernel/constants.js";
import type { RuleInfo, TableRef } from "../../../nft/kernel/kernel.js";
import { type EndedBy, endText } from "../machine/hooks.js";
import type { RoutedKernel } from "../world/routing.js";
import { OWN_TABLES } from "./foreign-chains.js";
import { Judge, type Obstacle } from "./judge.js";
import { seenFields } from "./seen-fields.js";
import type { ServedPackets, ServicePacket } from "./service-packets.js";

/** A rule or policy that drops services' packets. */
export interface ServicesObstacle extends Obstacle {
  /** "namespace/name", with the address if it is not the ClusterIP: "default/web (node port 30080)". In the order of checking. */
  readonly services: readonly string[];
}

/** A rule that prevents masquerading of services' packets. */
export interface ClearingRule extends EndedBy {
  readonly services: readonly string[];
}

interface FirewallCheck extends FirewallStatus {
  readonly obstacles: readonly ServicesObstacle[];
  readonly clearing: readonly ClearingRule[];
}

interface FirewallOptions extends Omit<ServedPackets, "families"> {
  readonly kernel: RoutedKernel;
  /** Bits of the mark that our rules may set. */
  readonly ownMark: number;
  /** Whether packets meet a rule. By default, they meet all. */
  readonly isMet?: (rule: RuleInfo) => boolean;
  /** Default 500 ms. */
  readonly budgetMs?: number;
}

const BUDGET_MS = 500;
/** Larger tables are not read, because that would take longer than an answer may. */
const MOST_RULES = 2000;
/** Maximum number of services to search for pods of this node. */
const MOST_SEARCHED = 1000;

const NONE: FirewallCheck = { obstacles: [], clearing: [], checked: 0, services: 0, unjudged: 0, unread: [] };

/**
 * Checks one packet per service, endpoint port and endpoint network, until the time budget is spent. Checks
 * nothing if no other program has base chains. Rejects with KernelError if the ruleset cannot be read.
 */
export async function checkFirewalls(options: FirewallOptions): Promise<FirewallCheck> {
  const { kernel, services, packets, budgetMs = BUDGET_MS } = options;
  const { tables, unread } = await foreignTables(kernel);
  if (tables.length === 0) return { ...NONE, unread };
  const judge = new Judge(kernel, tables, await seenFields(kernel, tables), options.ownMark, options.isMet);
  const [found, clearing] = [new Findings<Obstacle>(), new Findings<EndedBy>()];
  const unjudged = new Set<string>();
  let unjudgedRule: string | undefined;
  let [checked, all] = [0, 0];
  const slice = new TimeSlice();
  await meetPods(judge, options, slice);
  const until = performance.now() + budgetMs;
  for (const service of services) {
    all++;
    if (performance.now() >= until) continue;
    for (const packet of packets(service)) {
      const { obstacles, clearing: some, unknown } = await judge.of(packet);
      if (unknown !== undefined) unjudged.add(service);
      unjudgedRule ??= unknown;
      for (const obstacle of obstacles) found.add(obstacle, packet);
      for (const rule of some) clearing.add(rule, packet);
      if (slice.spent) await slice.yield();
    }
    checked++;
  }
  const dropping = found.all();
  const hasExceptions = dropping.some(({ except }) => except !== undefined);
  const used = hasExceptions ? await judge.usedInterfaces() : new Set<string>();
  const obstacles: ServicesObstacle[] = [];
  for (const { except, pods, ...obstacle } of dropping) {
    const isUsed = (except ?? []).some((name) => used.has(name));
    if (!isUsed) obstacles.push({ ...obstacle, ...(except && { except }) });
    // Pods are the main clients. Others may be unwanted.
    else if (pods !== undefined) obstacles.push({ ...obstacle, pods });
    else {
      for (const service of obstacle.services) unjudged.add(service.replace(/ .*/, ""));
      unjudgedRule ??= endText(obstacle);
    }
  }
  return {
    ...{ obstacles, clearing: clearing.all(), checked, services: all },
    ...{ unjudged: unjudged.size, unjudgedRule, unread },
  };
}

/** Findings without duplicates, each with the services whose packets it concerns. */
class Findings<T extends EndedBy> {
  readonly #found = new Map<string, { readonly finding: T; readonly services: Map<string, Set<string>> }>();

  add(finding: T, { service, to = "" }: ServicePacket): void {
    const key = JSON.stringify(finding);
    const known = this.#found.get(key) ?? { finding, services: new Map() };
    this.#found.set(key, known);
    known.services.set(service, (known.services.get(service) ?? new Set()).add(to));
  }

  /** Other addresses are named if the finding does not concern the ClusterIP. */
  all(): (T & { readonly services: readonly string[] })[] {
    return Array.from(this.#found.values(), ({ finding, services }) => ({
      ...finding,
      services: Array.from(services, ([service, to]) => (to.has("") ? service : `${service} (${[...to].join(", ")})`)),
    }));
  }
}

/** Makes the judge know pods of this node, which are the main clients. */
async function meetPods(judge: Judge, { services, packets }: FirewallOptions, slice: TimeSlice): Promise<void> {
  let searched = 0;
  for (const service of services) {
    if (++searched > MOST_SEARCHED) return;
    for (const packet of packets(service)) if (!(await judge.meet(packet))) return;
    if (slice.spent) await slice.yield();
  }
}

/** Tables of other programs with base chains that such packets pass. */
async function foreignTables(kernel: RoutedKernel): Promise<{ tables: readonly TableRef[]; unread: string[] }> {
  const tables: TableRef[] = [];
  const unread: string[] = [];
  for (const { family, table, flags } of await kernel.tables()) {
    if (family === "arp" || OWN_TABLES.includes(table) || (flags & TableFlag.dormant) !== 0) continue;
    const chains = await kernel.chains({ family, table });
    if (!chains.some(({ base }) => base !== undefined && base.type !== "nat")) continue;
    // A chain's `use` counts its rules and the references to it.
    const rules = chains.reduce((sum, { use }) => sum + use, 0);
    if (rules > MOST_RULES) unread.push(`${family} ${table} (${rules} rules)`);
    else tables.push({ family, table });
  }
  return { tables, unread };
}

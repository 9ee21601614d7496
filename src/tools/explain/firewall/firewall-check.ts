/**
 * Checks whether other programs' rules drop services' packets. It runs their base chains on the first packet to an
 * endpoint and on the endpoint's reply. The sender is unknown, so a finding applies to all clients, or to all of the
 * interfaces by which pods and clients are known to come.
 */
import type { FirewallStatus } from "../../../observe/status-report.js";
import { TimeSlice } from "../../../base/time-slice.js";
import { FLOWTABLE_REF } from "../../../flowtable/operations.js";
import { TableFlag } from "../../../netlink/constants.js";
import type { TableRef } from "../../../netlink/kernel.js";
import { OURS } from "../explain-packet.js";
import { endText } from "../machine/run-chain.js";
import type { RoutedKernel } from "../world/routing.js";
import { Judge, type Obstacle } from "./judge.js";
import { seenFields } from "./seen-fields.js";
import type { ServicePacket } from "./service-packets.js";

/** A rule or policy that drops services' packets. */
export interface ServicesObstacle extends Obstacle {
  /** "namespace/name", in the order of checking. */
  readonly services: readonly string[];
}

interface FirewallCheck extends FirewallStatus {
  readonly obstacles: readonly ServicesObstacle[];
}

interface FirewallOptions {
  readonly kernel: RoutedKernel;
  /** "namespace/name" of all services. */
  readonly services: Iterable<string>;
  readonly packets: (service: string) => Iterable<ServicePacket>;
  /** Bits of the mark that our rules may set. */
  readonly ownMark: number;
  /** Default 500 ms. */
  readonly budgetMs?: number;
}

const BUDGET_MS = 500;
/** Larger tables are not read, because that would take longer than an answer may. */
const MOST_RULES = 2000;

const NONE: FirewallCheck = { obstacles: [], checked: 0, services: 0, unjudged: 0, unread: [] };

/**
 * Checks one packet per service, endpoint port and endpoint network, until the time budget is spent. Checks
 * nothing if no other program has base chains. Rejects with KernelError if the ruleset cannot be read.
 */
export async function checkFirewalls(options: FirewallOptions): Promise<FirewallCheck> {
  const { kernel, services, packets, budgetMs = BUDGET_MS } = options;
  const { tables, unread } = await foreignTables(kernel);
  if (tables.length === 0) return { ...NONE, unread };
  const judge = new Judge(kernel, tables, await seenFields(kernel, tables), options.ownMark);
  const found = new Map<string, { readonly obstacle: Obstacle; readonly services: Set<string> }>();
  const unjudged = new Set<string>();
  let unjudgedRule: string | undefined;
  let [checked, all] = [0, 0];
  const until = performance.now() + budgetMs;
  const slice = new TimeSlice();
  for (const service of services) {
    all++;
    if (performance.now() >= until) continue;
    for (const packet of packets(service)) {
      const { obstacles, unknown } = await judge.of(packet);
      if (unknown !== undefined) unjudged.add(service);
      unjudgedRule ??= unknown;
      for (const obstacle of obstacles) {
        const key = JSON.stringify(obstacle);
        const known = found.get(key) ?? { obstacle, services: new Set() };
        found.set(key, known);
        known.services.add(service);
      }
      if (slice.spent) await slice.yield();
    }
    checked++;
  }
  const hasExceptions = [...found.values()].some(({ obstacle }) => obstacle.except !== undefined);
  const used = hasExceptions ? await judge.usedInterfaces() : new Set<string>();
  const obstacles: ServicesObstacle[] = [];
  for (const { obstacle, services: some } of found.values()) {
    if (!(obstacle.except ?? []).some((name) => used.has(name))) {
      obstacles.push({ ...obstacle, services: [...some] });
      continue;
    }
    for (const service of some) unjudged.add(service);
    unjudgedRule ??= endText(obstacle);
  }
  return {
    obstacles,
    checked,
    services: all,
    unjudged: unjudged.size,
    unjudgedRule,
    unread,
  };
}

const OWN: readonly string[] = [...OURS, FLOWTABLE_REF.table];

/** Tables of other programs with base chains that such packets pass. */
async function foreignTables(
  kernel: RoutedKernel,
): Promise<{ readonly tables: readonly TableRef[]; readonly unread: string[] }> {
  const tables: TableRef[] = [];
  const unread: string[] = [];
  for (const { family, table, flags } of await kernel.tables()) {
    if (family === "arp" || OWN.includes(table) || (flags & TableFlag.dormant) !== 0) continue;
    const chains = await kernel.chains({ family, table });
    if (!chains.some(({ base }) => base !== undefined && base.type !== "nat")) continue;
    // A chain's `use` counts its rules and the references to it.
    const rules = chains.reduce((sum, { use }) => sum + use, 0);
    if (rules > MOST_RULES) unread.push(`${family} ${table} (${rules} rules)`);
    else tables.push({ family, table });
  }
  return { tables, unread };
}

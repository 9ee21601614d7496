/**
 * Limits of connections. The maps `limited-services` and `limited-nodeports` give a service port a number. The map `limits`
 * leads from the number to a chain: there is one chain per distinct set of limits, shared by all service ports with the
 * same limits. Packets fill the counting sets, which have as key the number, or the number and the client. The first service
 * with limits creates all of this.
 *
 * A number stands for one service port with one set of limits. Elements keep the limit that they were created with, so changed
 * limits need a new number and start counting from 0. All this is in the NAT hooks, which only see the first packet of a
 * connection.
 */
import { createHash } from "node:crypto";
import type { Limits } from "../objects/connection-limits.js";
import type { IpFamily } from "../base/ip.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { Rule, Statement, TableDeclarations } from "../nft/engine-exports.js";
import { packNumber } from "./key-packer.js";
import { SetName } from "./names.js";
import { addressType, type ElementSets, LIMIT_ROLES, limitMapSpecs } from "./element-sets.js";
import { drop, goto, reject, reset, resetPriority, rule } from "./statements.js";
import { refusalRules } from "./refusals.js";
import type { ServiceCounters } from "./service-counters.js";
import { Uses } from "./uses.js";

/**
 * Number of clients counted at a time; further clients are not limited. It is a multiple of 65,536 for the same reason as
 * MAX_CLIENTS in affinity-chains.ts.
 */
const MAX_COUNTED = 2 ** 18;
/** Minimum time after which an inactive client is forgotten, ms. It has its whole burst again by then. */
const MIN_RATE_TIMEOUT = 10_000;
const UNIT_MS = { second: 1000, minute: 60_000, hour: 3_600_000 } as const;

const SETS = { connections: "limit-connections", clients: "limit-client-connections", rates: "limit-client-rates" };
const OVER = { reject: "over-limit-reject", drop: "over-limit-drop" } as const;
const OF_SERVICE = ["meta priority"] as const;
const OF_CLIENT = ["meta priority", "saddr"] as const;

/** A service port's limits, and its number. */
export interface PortLimits {
  readonly limits: Limits;
  readonly number: number;
}

/** "limit-1000-c10-r5s20-reject": 1,000 connections; per client 10, and 5 a second with a burst of 20. */
export function limitChain({ connections, clientConnections, rate, action }: Limits): string {
  const parts = [
    ...(connections > 0 ? [String(connections)] : []),
    ...(clientConnections > 0 ? [`c${clientConnections}`] : []),
    ...(rate === undefined ? [] : [`r${rate.count}${rate.per[0]}${rate.burst}`]),
  ];
  return `limit-${parts.join("-")}-${action}`;
}

/** The chains, their counting sets, and the maps that lead to them. */
export class LimitChains {
  readonly #table: TableDeclarations;
  readonly #family: IpFamily;
  readonly #sets: ElementSets;
  /** Uses of each chain by service ports. */
  readonly #uses = new Uses<string>();
  readonly #counters: ServiceCounters;
  #rejects: boolean;

  /**
   * @param sets has the maps as long as a service has limits.
   * @param rejects the kernel supports `reject` in prerouting. Otherwise, connections over a limit are dropped.
   */
  constructor(
    table: TableDeclarations,
    family: IpFamily,
    sets: ElementSets,
    { rejects, counters }: { readonly rejects: boolean; readonly counters: ServiceCounters },
  ) {
    this.#table = table;
    this.#family = family;
    this.#sets = sets;
    this.#rejects = rejects;
    this.#counters = counters;
  }

  set rejects(rejects: boolean) {
    this.#rejects = rejects;
    if (this.#uses.present.size > 0) this.#declareOver();
  }

  /** Keeps the service port's number, or assigns an unused one. It is the same after a restart, unless two hashes are equal. */
  numbered(view: ServicePortView, limits: Limits, former: PortLimits | undefined): PortLimits {
    const chain = limitChain(limits);
    if (former !== undefined && limitChain(former.limits) === chain) return { limits, number: former.number };
    const parts = [view.service, view.portName, view.protocol, chain];
    let number = createHash("sha256").update(JSON.stringify(parts)).digest().readUInt32LE();
    const isTaken = (): boolean => this.#sets.limits?.has(packNumber(number)) === true;
    // nft prints 0 and all ones as names.
    while (number === 0 || number === 0xffffffff || isTaken()) number = (number + 1) >>> 0;
    return { limits, number };
  }

  /** Counts one more service port that leads to the chain, and declares the chain if it is new. */
  use(limits: Limits): void {
    const name = limitChain(limits);
    if (!this.#uses.add(name)) return;
    if (this.#sets.limits === undefined) this.#declareSets();
    this.#table.chain({ chain: name, rules: limitRules(limits) });
  }

  release(limits: Limits): void {
    this.#uses.release(limitChain(limits));
  }

  /**
   * Drops chains that have been unused for `forMs`, by default UNUSED_MS. `now`: ms, monotonic. The rules that use the maps
   * have been dropped before (on-demand.ts), because the maps have been empty for at least as long.
   */
  collectUnused(now: number, forMs?: number): void {
    for (const [name] of this.#uses.takeOverdue(now, forMs)) this.#table.removeChain(name);
    if (this.#uses.present.size > 0 || this.#sets.limits === undefined) return;
    for (const chain of Object.values(OVER)) this.#table.removeChain(chain);
    for (const set of Object.values(SETS)) this.#table.removeSet(set);
    for (const role of LIMIT_ROLES) {
      this.#table.removeSet(SetName[role]);
      this.#sets[role] = undefined;
    }
  }

  #declareSets(): void {
    const ofClient = ["classid", addressType(this.#family)] as const;
    const counted = { dynamic: true, size: MAX_COUNTED } as const;
    this.#table.packedSet({ set: SETS.connections, key: ["classid"], ...counted });
    this.#table.packedSet({ set: SETS.clients, key: ofClient, ...counted });
    this.#table.packedSet({ set: SETS.rates, key: ofClient, ...counted, timeoutMs: 0 });
    this.#declareOver();
    const specs = limitMapSpecs(this.#family);
    for (const role of LIMIT_ROLES) this.#sets[role] = this.#table.packedSet({ ...specs[role], set: SetName[role] });
  }

  #declareOver(): void {
    const refuse = this.#rejects ? [rule({ field: "meta l4proto", value: "tcp" }, reset), rule(reject)] : [rule(drop)];
    const count = refusalRules("limits", this.#counters);
    this.#table.chain({ chain: OVER.reject, rules: [...count, ...refuse] });
    this.#table.chain({ chain: OVER.drop, rules: [...count, rule(drop)] });
  }
}

/** Check the client's own limits first: connections that they refuse must not count for the service. */
function limitRules({ connections, clientConnections, rate, action }: Limits): Rule[] {
  const rules: Rule[] = [];
  const refuse = (over: Statement): void => void rules.push(rule(over, goto(OVER[action])));
  if (rate !== undefined) {
    const { count, per, burst } = rate;
    const timeoutMs = Math.max(MIN_RATE_TIMEOUT, Math.ceil((burst * UNIT_MS[per]) / count));
    refuse({ action: "rate-over", set: SETS.rates, key: OF_CLIENT, rate: count, per, burst, timeoutMs });
  }
  if (clientConnections > 0) {
    refuse({ action: "connections-over", set: SETS.clients, key: OF_CLIENT, count: clientConnections });
  }
  if (connections > 0) {
    refuse({ action: "connections-over", set: SETS.connections, key: OF_SERVICE, count: connections });
  }
  return [...rules, rule(resetPriority)];
}

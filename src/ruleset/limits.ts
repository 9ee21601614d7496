/**
 * Limits of connections. The maps `limited-services` and `limited-nodeports` give a service port a number, `limits` leads from that to a chain: one for each
 * set of limits in use, shared by all that have the same. What is counted stands in sets that packets fill, by number, and by number and client. All of
 * it comes with the first service that asks for limits.
 *
 * A number stands for one service port with one set of limits: elements keep the limit that they began with, so that other limits count
 * anew. All this is in the NAT hooks, which see the first packet of a connection alone.
 */
import { createHash } from "node:crypto";
import type { Limits } from "../objects/limits.js";
import type { IpFamily } from "../base/ip.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { Rule, Statement, TableDeclarations } from "../table/table-exports.js";
import { packNumber } from "./keys.js";
import { SetName } from "./names.js";
import { addressType, type ElementSets, LIMIT_ROLES, limitMapSpecs } from "./sets.js";
import { drop, goto, reject, reset, resetPriority, rule } from "./statements.js";
import { Uses } from "./uses.js";

/** Clients that are counted at a time: further clients are not limited. A multiple of 65,536, as of MAX_CLIENTS in affinity-chains.ts. */
const MAX_COUNTED = 2 ** 18;
/** A client that has not come for so long has its burst again in any case, ms. */
const MIN_RATE_TIMEOUT = 10_000;
const UNIT_MS = { second: 1000, minute: 60_000, hour: 3_600_000 } as const;

const SETS = { connections: "limit-connections", clients: "limit-client-connections", rates: "limit-client-rates" };
const OVER = { reject: "over-limit-reject", drop: "over-limit-drop" } as const;
const OF_SERVICE = ["priority"] as const;
const OF_CLIENT = ["priority", "saddr"] as const;

/** A service port's limits, and the number that they are counted by. */
export interface PortLimits {
  readonly limits: Limits;
  readonly number: number;
}

/** "limit-1000-c10-r5s20-reject": 1,000 connections, 10 and 5 a second (20 at once) of each client. */
export function limitChain({ connections, clientConnections, rate, action }: Limits): string {
  const parts = [
    ...(connections > 0 ? [String(connections)] : []),
    ...(clientConnections > 0 ? [`c${clientConnections}`] : []),
    ...(rate === undefined ? [] : [`r${rate.count}${rate.per[0]}${rate.burst}`]),
  ];
  return `limit-${parts.join("-")}-${action}`;
}

/** The chains, with the sets that they count in, and the maps that lead to them. */
export class LimitChains {
  readonly #table: TableDeclarations;
  readonly #family: IpFamily;
  readonly #sets: ElementSets;
  /** Of each chain, by service ports. */
  readonly #uses = new Uses<string>();
  #rejects: boolean;

  /**
   * @param sets gets the maps while a service asks for limits.
   * @param rejects the kernel knows `reject` in prerouting; else what is over a limit is dropped.
   */
  constructor(table: TableDeclarations, family: IpFamily, sets: ElementSets, rejects: boolean) {
    this.#table = table;
    this.#family = family;
    this.#sets = sets;
    this.#rejects = rejects;
  }

  set rejects(rejects: boolean) {
    this.#rejects = rejects;
    if (this.#uses.present.size > 0) this.#declareOver();
  }

  /** With the number that the service port had, or one that no other has: the same after a restart, but where two hashes are alike. */
  numbered(view: ServicePortView, limits: Limits, former: PortLimits | undefined): PortLimits {
    const chain = limitChain(limits);
    if (former !== undefined && limitChain(former.limits) === chain) return { limits, number: former.number };
    const parts = [view.service, view.portName, view.protocol, chain];
    let number = createHash("sha256").update(JSON.stringify(parts)).digest().readUInt32LE();
    const isTaken = (): boolean => this.#sets.limits?.has(packNumber(number)) === true;
    // 0 and all ones have names of their own in nft.
    while (number === 0 || number === 0xffffffff || isTaken()) number = (number + 1) >>> 0;
    return { limits, number };
  }

  /** One more service port leads to the chain: it is there from now on. */
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
   * Drops what nothing has led to for `forMs`, by default a while. `now`: ms, monotonic. The rules that look in the maps have gone by then
   * (on-demand.ts): the maps have been empty for no less.
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
    this.#table.set({ set: SETS.connections, key: ["classid"], ...counted });
    this.#table.set({ set: SETS.clients, key: ofClient, ...counted });
    this.#table.set({ set: SETS.rates, key: ofClient, ...counted, timeoutMs: 0 });
    this.#declareOver();
    const specs = limitMapSpecs(this.#family);
    for (const role of LIMIT_ROLES) this.#sets[role] = this.#table.set({ ...specs[role], set: SetName[role] });
  }

  #declareOver(): void {
    const refuse = this.#rejects ? [rule({ match: "protocol", protocol: "tcp" }, reset), rule(reject)] : [rule(drop)];
    this.#table.chain({ chain: OVER.reject, rules: refuse });
    this.#table.chain({ chain: OVER.drop, rules: [rule(drop)] });
  }
}

/** The client's own limits first: what they refuse does not count for the service. */
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

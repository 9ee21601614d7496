/** The chains of limits, the maps that lead to them and the sets that they count in: there while a service asks for limits (limits.ts). */
import type { Limits } from "../model/limits.js";
import type { IpFamily } from "../model/types.js";
import type { ElementSet, FieldType, Rule, SetSpec, Statement, TableDeclarations } from "../table/index.js";
import { limitChain } from "./limits.js";
import { type LimitMaps, limitMapSpecs } from "./sets.js";
import { goto, resetPriority } from "./skeleton.js";

/** How long a chain stays when no service leads to it, ms: the limits may come back. */
const UNUSED_MS = 60_000;
/** Clients that are counted at a time: further clients are not limited. A multiple of 65,536, as of MAX_CLIENTS in affinity-chains.ts. */
const MAX_COUNTED = 2 ** 18;
/** A client that has not come for so long has its burst again in any case, ms. */
const MIN_RATE_TIMEOUT = 10_000;
const UNIT_MS = { second: 1000, minute: 60_000, hour: 3_600_000 } as const;

const SETS = { connections: "limit-connections", clients: "limit-client-connections", rates: "limit-client-rates" };
const OVER = { reject: "over-limit-reject", drop: "over-limit-drop" } as const;
const OF_SERVICE = ["priority"] as const;
const OF_CLIENT = ["priority", "saddr"] as const;

export class LimitChains {
  readonly #table: TableDeclarations;
  readonly #family: IpFamily;
  readonly #chains = new Map<string, { readonly limits: Limits; uses: number; unusedSince: number | undefined }>();
  #maps: LimitMaps | undefined;
  #rejects: boolean;

  /** @param rejects the kernel knows `reject` in prerouting; else what is over a limit is dropped. */
  constructor(table: TableDeclarations, family: IpFamily, rejects: boolean) {
    this.#table = table;
    this.#family = family;
    this.#rejects = rejects;
  }

  /** There from the first service on that asks for limits. */
  get maps(): LimitMaps | undefined {
    return this.#maps;
  }

  set rejects(rejects: boolean) {
    if (rejects === this.#rejects) return;
    this.#rejects = rejects;
    if (this.#chains.size > 0) this.#declareShared();
  }

  /** One more service port leads to the chain: it is there from now on. */
  use(limits: Limits): void {
    const name = limitChain(limits);
    let chain = this.#chains.get(name);
    if (chain === undefined) {
      if (this.#chains.size === 0) this.#declareShared();
      this.#maps ??= this.#declareMaps();
      chain = { limits, uses: 0, unusedSince: undefined };
      this.#chains.set(name, chain);
      this.#table.chain({ chain: name, rules: limitRules(limits) });
    }
    chain.uses++;
    chain.unusedSince = undefined;
  }

  release(limits: Limits): void {
    const chain = this.#chains.get(limitChain(limits));
    if (chain !== undefined) chain.uses--;
  }

  /** Drops what nothing has led to for `forMs`, by default a while. `now`: ms, monotonic; `lookedIn`: rules look in the maps still. */
  collectUnused(now: number, lookedIn: boolean, forMs = UNUSED_MS): void {
    if (this.#maps === undefined) return;
    for (const [name, chain] of this.#chains) {
      if (chain.uses > 0) continue;
      chain.unusedSince ??= now;
      if (now - chain.unusedSince < forMs) continue;
      this.#chains.delete(name);
      this.#table.removeChain(name);
    }
    if (this.#chains.size > 0) return;
    for (const chain of Object.values(OVER)) this.#table.removeChain(chain);
    for (const set of Object.values(SETS)) this.#table.removeSet(set);
    if (lookedIn) return;
    for (const { spec } of Object.values(this.#maps)) this.#table.removeSet(spec.set);
    this.#maps = undefined;
  }

  #declareMaps(): LimitMaps {
    const { limitedServices, limitedNodePorts, limits } = limitMapSpecs(this.#family);
    const declared = (spec: SetSpec): ElementSet => this.#table.set(spec);
    return {
      limitedServices: declared(limitedServices),
      limitedNodePorts: declared(limitedNodePorts),
      limits: declared(limits),
    };
  }

  #declareShared(): void {
    const address: FieldType = this.#family === "ip" ? "ipv4_addr" : "ipv6_addr";
    const counted = { dynamic: true, size: MAX_COUNTED } as const;
    this.#table.set({ set: SETS.connections, key: ["classid"], ...counted });
    this.#table.set({ set: SETS.clients, key: ["classid", address], ...counted });
    this.#table.set({ set: SETS.rates, key: ["classid", address], ...counted, timeoutMs: 0 });
    const refuse: readonly Statement[][] = this.#rejects
      ? [
          [
            { match: "protocol", protocol: "tcp" },
            { action: "reject", with: "tcp-reset" },
          ],
          [{ action: "reject" }],
        ]
      : [[{ action: "verdict", verdict: { verdict: "drop" } }]];
    this.#table.chain({ chain: OVER.reject, rules: refuse.map((statements) => ({ statements })) });
    const drop: Rule = { statements: [{ action: "verdict", verdict: { verdict: "drop" } }] };
    this.#table.chain({ chain: OVER.drop, rules: [drop] });
  }
}

/** The client's own limits first: what they refuse does not count for the service. */
function limitRules({ connections, clientConnections, rate, action }: Limits): Rule[] {
  const over = goto(OVER[action]);
  const statements: Statement[][] = [];
  if (rate !== undefined) {
    const { count, per, burst } = rate;
    const timeoutMs = Math.max(MIN_RATE_TIMEOUT, Math.ceil((burst * UNIT_MS[per]) / count));
    statements.push([
      { action: "rate-over", set: SETS.rates, key: OF_CLIENT, rate: count, per, burst, timeoutMs },
      over,
    ]);
  }
  if (clientConnections > 0) {
    statements.push([
      { action: "connections-over", set: SETS.clients, key: OF_CLIENT, count: clientConnections },
      over,
    ]);
  }
  if (connections > 0) {
    statements.push([{ action: "connections-over", set: SETS.connections, key: OF_SERVICE, count: connections }, over]);
  }
  return [...statements, [resetPriority]].map((each) => ({ statements: each }));
}

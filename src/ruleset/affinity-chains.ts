/**
 * ClientIP affinity as rules. A service port has a set of clients, filled by the packets themselves, and for each of its lists a chain with
 * a rule for each endpoint. What those lead to are elements of shared maps (sticky-numbers.ts says how, and why the rules are not one
 * as well): no chain or set is an endpoint's own, as the kernel looks sets up by walking the list of all that the table has.
 */
import type { EndpointList } from "../model/endpoints.js";
import type { ChainSpec, Field, FieldType, Rule, SetSpec, Statement } from "../table/index.js";
import { stickyList } from "./list-values.js";
import { ChainName, drawChainName, ownComment, type OwnNames } from "./names.js";
import type { ServicePortState } from "./service.js";
import { goto, jump, markForMasquerade, type SkeletonOptions } from "./skeleton.js";
import { numberOf, usesList } from "./sticky-numbers.js";

/**
 * Clients that a service port remembers: spoofed ones can make it no more. A multiple of 65,536 on purpose: the kernel reserves buckets
 * for the last 16 bits of a set's size (rhashtable_params.nelem_hint), a megabyte for 65,535 and nothing for this.
 */
const MAX_CLIENTS = 2 ** 20;

interface StickyList {
  readonly list: number;
  /** Numbers of its endpoints, in an order that does not depend on that of events. */
  readonly numbers: readonly number[];
  /** Set of the service port's clients, each with the number of its endpoint. */
  readonly clients: string;
  /** Rewrites to the endpoint whose number the packet has, if that is in this list. */
  readonly rewrite: string;
  readonly timeoutMs: number;
}

/** The client's endpoint if it has one in this list, else one at random. */
function listRules({ list, numbers, clients }: StickyList, remember: string): Rule[] {
  const key = CLIENT_KEY;
  const known = numbers.map((value): Statement[] => [
    { action: "set-priority", value },
    { match: "in-set", key, set: clients },
    goto(remember),
  ]);
  return [...known, draw(list, numbers.length), [goto(remember)]].map((statements) => ({ statements }));
}

/**
 * Remembers the client, also when the set is full, and rewrites. The last rules are for packets that are under way while the list
 * shrinks: they run these rules, but look up in the new generation of the maps, where what they drew may be gone. At the first
 * index there is always one.
 */
function rememberRules({ list, clients, rewrite, timeoutMs }: StickyList): Rule[] {
  const toEndpoint = jump(rewrite);
  const update: Statement = { action: "update", set: clients, key: CLIENT_KEY, timeoutMs };
  return [[update], [toEndpoint], draw(list, 1), [toEndpoint]].map((statements) => ({ statements }));
}

const CLIENT_KEY: readonly Field[] = ["saddr", "priority"];

function draw(list: number, count: number): Statement[] {
  const chain = drawChainName({ kind: "sticky", count, shard: 0, nodePort: false });
  return [{ action: "set-priority", value: list }, jump(chain)];
}

/** Declares the set and the chains of a service port with affinity; of others nothing. */
export function declareAffinity(
  table: { chain(spec: ChainSpec): void; set(spec: SetSpec): void },
  state: ServicePortState,
  names: OwnNames,
  options: Pick<SkeletonOptions, "family" | "masqueradeBit">,
): void {
  const { view, sticky } = state;
  if (sticky === undefined) return;
  const key: readonly FieldType[] = [options.family === "ip" ? "ipv4_addr" : "ipv6_addr", "classid"];
  table.set({ set: names.clients, key, dynamic: true, timeoutMs: 0, size: MAX_CLIENTS });
  for (const kind of ["cluster", "local"] as const) {
    if (state[kind].length === 0 || !usesList(view, kind)) continue;
    const list: StickyList = {
      list: stickyList(kind, sticky.list),
      numbers: byAddress(state[kind]).map((index) => numberOf(sticky, state[kind], index)),
      clients: names.clients,
      rewrite: kind === "cluster" ? ChainName.stickyCluster : ChainName.stickyLocal,
      timeoutMs: view.affinitySeconds * 1000,
    };
    table.chain({ chain: names.remember[kind], rules: rememberRules(list) });
    table.chain({ chain: names.draw[kind], rules: listRules(list, names.remember[kind]), ...ownComment(view) });
    if (kind === "cluster" && !view.externalPolicyLocal) {
      const mark = markForMasquerade(options.masqueradeBit);
      const rules = [{ statements: [mark] }, { statements: [goto(names.draw.cluster)] }];
      table.chain({ chain: names.draw.masq, rules });
    }
  }
}

/** Indices in an order that does not depend on that of events, as the rules of a list must not. */
function byAddress(list: EndpointList): number[] {
  const ids = Array.from({ length: list.length }, (_, index) => list.id(index));
  return Array.from(ids.keys()).sort((a, b) => (ids[a] < ids[b] ? -1 : 1));
}

/**
 * ClientIP affinity as rules. A service has a set of clients, which packets fill themselves. Each port has one chain per list, with
 * one rule per endpoint. These rules use elements of shared maps; affinity-numbers.ts explains how, and why a
 * single rule is not enough. No endpoint has its own chain or set, because the kernel finds a set by walking the list of all
 * sets in the table.
 */
import type { EndpointList } from "../objects/endpoint-list.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { Field, Rule, Statement, TableDeclarations } from "../nft/engine-exports.js";
import { affinityList } from "./list-values.js";
import { ChainName, drawChainName, ownComment, ownNames } from "./names.js";
import type { OwnChainOptions, OwnObject } from "./own-object.js";
import type { ServicePortState, AffinityState } from "./service-port-state.js";
import { addressType } from "./element-sets.js";
import { goto, jump, markForMasquerade, rule, setPriority } from "./statements.js";
import { listsInUse, NUMBERED, numberOf, numbersOf } from "./affinity-numbers.js";

/**
 * Maximum number of clients remembered per service, so that spoofed addresses cannot exceed it. It is a multiple of 65,536
 * on purpose. The kernel reserves buckets for the last 16 bits of a set's size (rhashtable_params.nelem_hint): a megabyte for
 * 65,535, and nothing for this size.
 */
const MAX_CLIENTS = 2 ** 20;

const CLIENT_KEY: readonly Field[] = ["saddr", "meta priority"];

/** The set and the chains of a service port with affinity; empty for others. */
export function affinityObjects(state: ServicePortState): OwnObject[] {
  const { view, affinity } = state;
  if (affinity === undefined) return [];
  const { clients, remember, draw: drawing } = ownNames(view);
  const declareClients = (table: TableDeclarations, { family }: OwnChainOptions): void => {
    const key = [addressType(family), "classid"] as const;
    table.packedSet({ set: clients, key, dynamic: true, timeoutMs: 0, size: MAX_CLIENTS });
  };
  const objects: OwnObject[] = [{ kind: "set", name: clients, declare: declareClients }];
  const add = (chain: string, rules: (options: OwnChainOptions) => readonly Rule[], comment = {}): void => {
    const declare: OwnObject["declare"] = (table, options) => table.chain({ chain, rules: rules(options), ...comment });
    objects.push({ kind: "chain", name: chain, declare });
  };
  for (const kind of listsInUse(state)) {
    const list = affinityList(kind, affinity.list);
    const known = (): Rule[] => knownRules(affinity, state[kind], clients, remember[kind]);
    add(remember[kind], () => rememberRules(list, view, clients, ChainName[NUMBERED[kind]]));
    add(
      drawing[kind],
      () => [...known(), draw(list, state[kind].length), rule(goto(remember[kind]))],
      ownComment(view),
    );
    if (kind === "cluster" && !view.externalPolicyLocal) {
      add(drawing.masq, ({ masqueradeBit }) => [rule(markForMasquerade(masqueradeBit)), rule(goto(drawing.cluster))]);
    }
  }
  return objects;
}

/** Rules that lead a client to its endpoint, if that is in this list. Their order does not depend on the order of events. */
function knownRules(affinity: AffinityState, list: EndpointList, clients: string, remember: string): Rule[] {
  const isKnown: Statement = { field: CLIENT_KEY, value: `@${clients}` };
  return byAddress(list).map((index) => rule(setPriority(numberOf(affinity, list, index)), isKnown, goto(remember)));
}

/**
 * Remembers the client. Then, even if the set is full, rewrites to the endpoint with the packet's number, if that is in this
 * list. The last rules are for packets in flight while the list shrinks. They run these rules, but look up in the new
 * generation of the maps, where their endpoint may be gone. The first index always has an endpoint.
 */
function rememberRules(list: number, view: ServicePortView, clients: string, rewrite: string): Rule[] {
  const timeoutMs = view.affinitySeconds * 1000;
  const toEndpoint = rule(jump(rewrite));
  const update = rule({ action: "update", set: clients, key: CLIENT_KEY, timeoutMs });
  return [update, toEndpoint, draw(list, 1), toEndpoint];
}

function draw(list: number, count: number): Rule {
  return rule(setPriority(list), jump(drawChainName(numbersOf(count))));
}

function byAddress(list: EndpointList): number[] {
  const ids = Array.from({ length: list.length }, (_, index) => list.id(index));
  return Array.from(ids.keys()).sort((a, b) => (ids[a] < ids[b] ? -1 : 1));
}

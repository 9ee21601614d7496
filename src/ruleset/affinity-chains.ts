/**
 * ClientIP affinity as rules. A service port has a set of clients, filled by the packets themselves, and for each of its lists a chain with
 * a rule for each endpoint. What those lead to are elements of shared maps (sticky-numbers.ts says how, and why the rules are not one
 * as well): no chain or set is an endpoint's own, as the kernel looks sets up by walking the list of all that the table has.
 */
import type { EndpointList } from "../objects/endpoint-list.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { Field, Rule, Statement, TableDeclarations } from "../table/table-exports.js";
import { stickyList } from "./list-values.js";
import { ChainName, drawChainName, ownComment, ownNames } from "./names.js";
import type { OwnChainOptions, OwnObject } from "./own-object.js";
import type { ServicePortState, Sticky } from "./service-port-state.js";
import { addressType } from "./sets.js";
import { goto, jump, markForMasquerade, rule } from "./statements.js";
import { listsInUse, NUMBERED, numberOf, numbersOf } from "./sticky-numbers.js";

/**
 * Clients that a service port remembers: spoofed ones can make it no more. A multiple of 65,536 on purpose: the kernel reserves buckets
 * for the last 16 bits of a set's size (rhashtable_params.nelem_hint), a megabyte for 65,535 and nothing for this.
 */
const MAX_CLIENTS = 2 ** 20;

const CLIENT_KEY: readonly Field[] = ["saddr", "priority"];

/** The set and the chains of a service port with affinity; of others none. */
export function affinityObjects(state: ServicePortState): OwnObject[] {
  const { view, sticky } = state;
  if (sticky === undefined) return [];
  const { clients, remember, draw: drawing } = ownNames(view);
  const declareClients = (table: TableDeclarations, { family }: OwnChainOptions): void => {
    const key = [addressType(family), "classid"] as const;
    table.set({ set: clients, key, dynamic: true, timeoutMs: 0, size: MAX_CLIENTS });
  };
  const objects: OwnObject[] = [{ kind: "set", name: clients, declare: declareClients }];
  const add = (chain: string, rules: (options: OwnChainOptions) => readonly Rule[], comment = {}): void => {
    const declare: OwnObject["declare"] = (table, options) => table.chain({ chain, rules: rules(options), ...comment });
    objects.push({ kind: "chain", name: chain, declare });
  };
  for (const kind of listsInUse(state)) {
    const list = stickyList(kind, sticky.list);
    const known = (): Rule[] => knownRules(sticky, state[kind], clients, remember[kind]);
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

/** Those that lead a client to its endpoint, if it has one in this list: in an order that does not depend on that of events. */
function knownRules(sticky: Sticky, list: EndpointList, clients: string, remember: string): Rule[] {
  const isKnown: Statement = { match: "in-set", key: CLIENT_KEY, set: clients };
  return byAddress(list).map((index) =>
    rule({ action: "set-priority", value: numberOf(sticky, list, index) }, isKnown, goto(remember)),
  );
}

/**
 * Remembers the client, also when the set is full, and rewrites to the endpoint whose number the packet has, if that is in this list. The last rules
 * are for packets that are under way while the list shrinks: they run these rules, but look up in the new generation of the maps, where what
 * they drew may be gone. At the first index there is always one.
 */
function rememberRules(list: number, view: ServicePortView, clients: string, rewrite: string): Rule[] {
  const timeoutMs = view.affinitySeconds * 1000;
  const toEndpoint = rule(jump(rewrite));
  const update = rule({ action: "update", set: clients, key: CLIENT_KEY, timeoutMs });
  return [update, toEndpoint, draw(list, 1), toEndpoint];
}

function draw(list: number, count: number): Rule {
  return rule({ action: "set-priority", value: list }, jump(drawChainName(numbersOf(count))));
}

function byAddress(list: EndpointList): number[] {
  const ids = Array.from({ length: list.length }, (_, index) => list.id(index));
  return Array.from(ids.keys()).sort((a, b) => (ids[a] < ids[b] ? -1 : 1));
}

/** Decides to which endpoints a service port sends connections. Pure. */
import { type EndpointList, NO_ENDPOINTS } from "../objects/endpoint-list.js";
import type { EndpointDetails } from "../objects/endpoint-details.js";
import { type Hints, NO_HINTS, READY, SERVING, TERMINATING } from "../objects/endpoint-state.js";

/** Numbers of a service port's endpoints. */
export interface EndpointCounts {
  readonly ready: number;
  /** Endpoints that take new connections: the ready ones, or the serving and terminating ones if none is ready. */
  readonly serving: number;
  readonly total: number;
}

/** Facts about this node that affect services. */
export interface NodeContext {
  /** metadata.name of the node, lower case. */
  readonly nodeName: string;
  /** Label topology.kubernetes.io/zone; absent if the node has none. */
  readonly zone?: string;
}

/** All endpoints of a service port, whatever their state: parallel arrays. */
export interface CandidateList {
  readonly endpoints: EndpointList;
  /** READY | SERVING | TERMINATING. */
  readonly states: readonly number[];
  /** Undefined if no endpoint has hints. */
  readonly hints: readonly Hints[] | undefined;
  /** Pods, nodes and zones of the endpoints. Undefined if unknown. */
  readonly details: Pick<EndpointDetails, "zone" | "all"> | undefined;
}

/** The lists that are used. An unused list stays empty. */
export interface NeededLists {
  /** For policy Cluster, and for pods and the node with an external policy Local. */
  readonly cluster: boolean;
  /** For policy Local. */
  readonly local: boolean;
}

export interface Categories {
  /**
   * The ready endpoints, narrowed by topology hints. If no endpoint on any node is ready, the serving and terminating ones,
   * without regard to hints. Empty if not needed.
   */
  readonly cluster: EndpointList;
  /** The ready endpoints on this node. If there are none, the serving and terminating ones on it. Empty if not needed. */
  readonly local: EndpointList;
  /**
   * Whether any endpoint on any node is ready, or serving and terminating. If false, connections are refused. If true,
   * connections that would draw from an empty list are dropped. Does not depend on `needed`.
   */
  readonly any: boolean;
}

const SERVING_TERMINATING = SERVING | TERMINATING;

const isReady = (state: number) => (state & READY) !== 0;
/** Serving and terminating, but not ready. (With publishNotReadyAddresses an endpoint may be all three.) */
const isServingTerminating = (state: number) => (state & (READY | SERVING_TERMINATING)) === SERVING_TERMINATING;

export function categorize(candidates: CandidateList, node: NodeContext, needed: NeededLists): Categories {
  let ready = 0;
  let terminating = 0;
  const { states } = candidates;
  for (let i = 0; i < states.length; i++) {
    const state = states[i] ?? 0;
    if (isReady(state)) ready++;
    else if (isServingTerminating(state)) terminating++;
  }
  return {
    cluster: needed.cluster ? clusterList(candidates, node, ready, terminating) : NO_ENDPOINTS,
    local: needed.local ? localList(candidates) : NO_ENDPOINTS,
    any: ready + terminating > 0,
  };
}

/**
 * Numbers of all, ready, and serving endpoints, without regard to hints and policy Local. If none is ready, the serving and
 * terminating ones count as serving.
 */
export function countStates({ states }: Pick<CandidateList, "states">): EndpointCounts {
  const ready = states.filter(isReady).length;
  return { ready, serving: ready > 0 ? ready : states.filter(isServingTerminating).length, total: states.length };
}

/** Whether any endpoint on any node is ready, or serving and terminating. */
export function isUsable({ states }: CandidateList): boolean {
  return states.some((state) => isReady(state) || isServingTerminating(state));
}

function clusterList(list: CandidateList, node: NodeContext, ready: number, terminating: number): EndpointList {
  if (ready === 0)
    return terminating === 0 ? NO_ENDPOINTS : list.endpoints.filter((i) => isServingTerminating(list.states[i] ?? 0));
  const { hints } = list;
  if (hints !== undefined) {
    const chosen = narrow(list, hints, ready, (hint) => hint.nodes, node.nodeName);
    if (chosen !== undefined) return chosen;
    const near = node.zone && narrow(list, hints, ready, (hint) => hint.zones, node.zone);
    if (near) return near;
  }
  if (ready === list.endpoints.length) return list.endpoints;
  return list.endpoints.filter((i) => isReady(list.states[i] ?? 0));
}

/**
 * The ready endpoints whose hints contain `name`. Returns undefined (do not narrow) unless every ready endpoint has hints of
 * this kind, and at least one of them contains it. A mixed list means that hints are just being added or removed.
 */
function narrow(
  list: CandidateList,
  hints: readonly Hints[],
  ready: number,
  kind: (hint: Hints) => readonly string[],
  name: string,
): EndpointList | undefined {
  let hinted = 0;
  const chosen = list.endpoints.filter((i) => {
    if (!isReady(list.states[i] ?? 0)) return false;
    const names = kind(hints[i] ?? NO_HINTS);
    if (names.length > 0) hinted++;
    return names.includes(name);
  });
  return hinted === ready && chosen.length > 0 ? chosen : undefined;
}

function localList(list: CandidateList): EndpointList {
  const { endpoints, states } = list;
  if (endpoints.locals === undefined) return NO_ENDPOINTS;
  const ready = endpoints.filter((i) => endpoints.isLocal(i) && isReady(states[i] ?? 0));
  if (ready.length > 0) return ready;
  return endpoints.filter((i) => endpoints.isLocal(i) && isServingTerminating(states[i] ?? 0));
}

/** Adds the addresses of ready endpoints on this node. */
export function addLocalReady(
  { endpoints, states }: Pick<CandidateList, "endpoints" | "states">,
  into: Set<number | string>,
): void {
  if (endpoints.locals === undefined) return;
  for (let i = 0; i < endpoints.length; i++) {
    if (endpoints.isLocal(i) && isReady(states[i] ?? 0)) into.add(endpoints.addressId(i));
  }
}

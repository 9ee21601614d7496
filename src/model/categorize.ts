/** Which endpoints a service port sends connections to. Pure. */
import { type EndpointList, NO_ENDPOINTS } from "../objects/endpoint-list.js";
import { type Hints, NO_HINTS, READY, SERVING, TERMINATING } from "../objects/endpoint-state.js";

/** How many endpoints a service port has. */
export interface EndpointCounts {
  readonly ready: number;
  /** Those that take new connections: the ready ones; if there are none, those that serve and terminate. */
  readonly serving: number;
  readonly total: number;
}

/** What this node is, as far as the meaning of services depends on it. */
export interface NodeContext {
  /** metadata.name of the node, lower case. */
  readonly nodeName: string;
  /** Label topology.kubernetes.io/zone; absent: none. */
  readonly zone?: string;
}

/** All endpoints of a service port, whatever their state: parallel arrays. */
export interface CandidateList {
  readonly endpoints: EndpointList;
  /** READY | SERVING | TERMINATING. */
  readonly states: readonly number[];
  /** Undefined when no endpoint has hints. */
  readonly hints: readonly Hints[] | undefined;
  /** Undefined when no endpoint has a zone. */
  readonly zones: Zones | undefined;
}

/** Where endpoints are. */
export interface Zones {
  /** Of the endpoint at an index; "": not said. */
  zone(index: number): string;
}

/** Which of the two lists something draws from; the other one stays empty. */
export interface NeededLists {
  /** Something of policy Cluster, or the pod and node short cuts of an external policy Local. */
  readonly cluster: boolean;
  /** Something of policy Local. */
  readonly local: boolean;
}

export interface Categories {
  /**
   * The ready endpoints, narrowed by topology hints; if no endpoint on any node is ready, those that are serving and
   * terminating, which hints do not narrow. Empty when not needed.
   */
  readonly cluster: EndpointList;
  /** The ready endpoints on this node; if none, the serving and terminating ones on it. Empty when not needed. */
  readonly local: EndpointList;
  /**
   * Some endpoint on some node is ready, or serving and terminating. False: connections are refused. True with an empty
   * list: connections that would draw from it are dropped. Does not depend on what is needed.
   */
  readonly any: boolean;
}

const DRAINING = SERVING | TERMINATING;

const isReady = (state: number) => (state & READY) !== 0;
/** Serving and terminating, and not ready (an endpoint published although not ready may be all three). */
const isDraining = (state: number) => (state & (READY | DRAINING)) === DRAINING;

export function categorize(candidates: CandidateList, node: NodeContext, needed: NeededLists): Categories {
  let ready = 0;
  let draining = 0;
  const { states } = candidates;
  for (let i = 0; i < states.length; i++) {
    const state = states[i] ?? 0;
    if (isReady(state)) ready++;
    else if (isDraining(state)) draining++;
  }
  return {
    cluster: needed.cluster ? clusterList(candidates, node, ready, draining) : NO_ENDPOINTS,
    local: needed.local ? localList(candidates) : NO_ENDPOINTS,
    any: ready + draining > 0,
  };
}

/**
 * How many endpoints there are, are ready, and take new connections, hints and policy Local aside: those that are ready; if none is, those that serve
 * and terminate.
 */
export function countStates({ states }: Pick<CandidateList, "states">): EndpointCounts {
  const ready = states.filter(isReady).length;
  return { ready, serving: ready > 0 ? ready : states.filter(isDraining).length, total: states.length };
}

/** Whether some endpoint on some node is ready, or serving and terminating. */
export function isUsable({ states }: CandidateList): boolean {
  return states.some((state) => isReady(state) || isDraining(state));
}

function clusterList(list: CandidateList, node: NodeContext, ready: number, draining: number): EndpointList {
  if (ready === 0) return draining === 0 ? NO_ENDPOINTS : list.endpoints.filter((i) => isDraining(list.states[i] ?? 0));
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
 * The ready endpoints whose hints name `name`. Undefined (no narrowing) unless every ready endpoint has hints of this
 * kind and at least one of them names it: a mixed list means that hints are being introduced or withdrawn.
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
  return endpoints.filter((i) => endpoints.isLocal(i) && isDraining(states[i] ?? 0));
}

/** Adds the addresses of the endpoints on this node that are ready. */
export function addLocalReady(
  { endpoints, states }: Pick<CandidateList, "endpoints" | "states">,
  into: Set<number | string>,
): void {
  if (endpoints.locals === undefined) return;
  for (let i = 0; i < endpoints.length; i++) {
    if (endpoints.isLocal(i) && isReady(states[i] ?? 0)) into.add(endpoints.addressId(i));
  }
}

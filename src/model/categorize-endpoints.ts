/** Decides to which endpoints a service port sends connections. Pure. */
import type { Protocol } from "../base/protocols.js";
import { type EndpointList, NO_ENDPOINTS } from "../objects/endpoint-list.js";
import { type Hints, NO_HINTS, READY, SERVING, TERMINATING } from "../objects/endpoint-state.js";
import type { EndpointColumns } from "../objects/records.js";
import type { EndpointLists } from "./service-port-view.js";

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

/** The lists that are used. An unused list stays empty. */
interface NeededLists {
  /** For policy Cluster, and for pods and the node with an external policy Local. */
  readonly cluster: boolean;
  /** For policy Local. */
  readonly local: boolean;
}

const SERVING_TERMINATING = SERVING | TERMINATING;

const isReady = (state: number) => (state & READY) !== 0;
/** Serving and terminating, but not ready. (With publishNotReadyAddresses an endpoint may be all three.) */
const isServingTerminating = (state: number) => (state & (READY | SERVING_TERMINATING)) === SERVING_TERMINATING;

export function categorizeEndpoints(
  candidates: EndpointColumns,
  node: NodeContext,
  needed: NeededLists,
): EndpointLists {
  let ready = 0;
  let terminating = 0;
  const { states } = candidates;
  for (let i = 0; i < states.length; i++) {
    const state = states[i] ?? 0;
    if (isReady(state)) ready++;
    else if (isServingTerminating(state)) terminating++;
  }
  return {
    clusterEndpoints: needed.cluster ? clusterList(candidates, node, ready, terminating) : NO_ENDPOINTS,
    localEndpoints: needed.local ? localList(candidates) : NO_ENDPOINTS,
    hasAnyEndpoint: ready + terminating > 0,
  };
}

/**
 * Numbers of all, ready, and serving endpoints, without regard to hints and policy Local. If none is ready, the serving and
 * terminating ones count as serving.
 */
export function countStates({ states }: Pick<EndpointColumns, "states">): EndpointCounts {
  const ready = states.filter(isReady).length;
  return { ready, serving: ready > 0 ? ready : states.filter(isServingTerminating).length, total: states.length };
}

/** Whether any endpoint on any node is ready, or serving and terminating. */
export function isUsable({ states }: EndpointColumns): boolean {
  return states.some((state) => isReady(state) || isServingTerminating(state));
}

/** Whether an endpoint in this state may have connections and continue them. */
export function takesTraffic(state: number): boolean {
  return (state & (READY | SERVING)) !== 0;
}

/**
 * Whether each endpoint drains: it is in none of the lists for new connections, and terminates, or may not continue its connections of UDP and SCTP.
 * Returns undefined if none does.
 */
export function drainingAmong(
  { endpoints, states }: EndpointColumns,
  { clusterEndpoints, localEndpoints }: EndpointLists,
  protocol: Protocol,
): readonly boolean[] | undefined {
  // A connection of TCP stays until the endpoint is removed, so there is nothing to keep while the endpoint is only not ready.
  const drains = (state: number) => (state & TERMINATING) !== 0 || (protocol !== "TCP" && !takesTraffic(state));
  if (!states.some(drains)) return undefined;
  const drawn = new Set<number | string>();
  for (const list of [clusterEndpoints, localEndpoints]) for (let i = 0; i < list.length; i++) drawn.add(list.id(i));
  const draining = states.map((state, i) => drains(state) && !drawn.has(endpoints.id(i)));
  return draining.includes(true) ? draining : undefined;
}

function clusterList(list: EndpointColumns, node: NodeContext, ready: number, terminating: number): EndpointList {
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
  list: EndpointColumns,
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

function localList(list: EndpointColumns): EndpointList {
  const { endpoints, states } = list;
  if (endpoints.locals === undefined) return NO_ENDPOINTS;
  const ready = endpoints.filter((i) => endpoints.isLocal(i) && isReady(states[i] ?? 0));
  if (ready.length > 0) return ready;
  return endpoints.filter((i) => endpoints.isLocal(i) && isServingTerminating(states[i] ?? 0));
}

/** Adds the addresses of ready endpoints on this node. */
export function addLocalReady(
  { endpoints, states }: Pick<EndpointColumns, "endpoints" | "states">,
  into: Set<number | string>,
): void {
  if (endpoints.locals === undefined) return;
  for (let i = 0; i < endpoints.length; i++) {
    if (endpoints.isLocal(i) && isReady(states[i] ?? 0)) into.add(endpoints.addressId(i));
  }
}

/** Services as an operator asks for them, from the model as it is now. */
import { TimeSlice } from "../base/time-slice.js";
import { weightsOf } from "../model/balance.js";
import type { EndpointList } from "../model/endpoints.js";
import type { ServiceModel } from "../model/index.js";
import type { IpFamily, ServicePortView, ServiceTarget } from "../model/types.js";
import type { PortConnections } from "../ruleset/connection-counts.js";
import type { EndpointStatus, ServicePortStatus, ServiceState } from "./types.js";

export type ListedModel = Pick<ServiceModel, "services" | "views" | "targets" | "lostClaims">;

/** A service's state in the kernel, which its objects do not tell. */
export interface ServiceStates {
  /** Written at least once since the start. */
  inForce(family: IpFamily): boolean;
  /** Why the kernel refuses "namespace/name"; undefined: it does not. */
  quarantineReason(family: IpFamily, service: string): string | undefined;
}

/** What has been counted of "namespace/name", by port; empty: nothing is. */
export interface ServiceConnections {
  connections(family: IpFamily, service: string): readonly PortConnections[];
  /** Between the two readings that it tells of. */
  readonly intervalMs: number | undefined;
}

const NOT_COUNTED: ServiceConnections = { connections: () => [], intervalMs: undefined };

/** All service ports of the families, by name; the event loop gets its turns meanwhile. */
export async function listServices(
  model: ListedModel,
  families: readonly IpFamily[],
  states: ServiceStates,
  counted = NOT_COUNTED,
): Promise<ServicePortStatus[]> {
  const slice = new TimeSlice();
  const lost = lossesByService(model);
  const names = [...model.services()].sort();
  const found: ServicePortStatus[] = [];
  for (const service of names) {
    for (const family of families)
      found.push(...portsOf(model, family, service, { states, lost, counted, details: false }));
    if (slice.spent) await slice.yield();
  }
  return found;
}

/** One service with its endpoints; empty: it is not served. */
export function describeService(
  model: ListedModel,
  families: readonly IpFamily[],
  states: ServiceStates,
  service: string,
  counted = NOT_COUNTED,
): ServicePortStatus[] {
  const lost = lossesByService(model);
  return families.flatMap((family) => portsOf(model, family, service, { states, lost, counted, details: true }));
}

function lossesByService(model: ListedModel): ReadonlyMap<string, string> {
  const lost = new Map<string, string>();
  for (const { object, field, reason } of model.lostClaims()) {
    if (!lost.has(object)) lost.set(object, `${field}: ${reason}`);
  }
  return lost;
}

interface Beside {
  readonly states: ServiceStates;
  readonly lost: ReadonlyMap<string, string>;
  readonly counted: ServiceConnections;
  readonly details: boolean;
}

function portsOf(model: ListedModel, family: IpFamily, service: string, beside: Beside): ServicePortStatus[] {
  const targets = new Map(model.targets(family, service).map((target) => [target.id, target]));
  const ports = beside.counted.connections(family, service);
  return model.views(family, service).map((view) => {
    const port = ports.find(({ portName, protocol }) => portName === view.portName && protocol === view.protocol);
    return {
      ...statusOf(family, view, { target: targets.get(view.id), port }, beside),
      ...rateOf(port, beside.counted),
    };
  });
}

function statusOf(
  family: IpFamily,
  view: ServicePortView,
  { target, port }: { readonly target: ServiceTarget | undefined; readonly port: PortConnections | undefined },
  beside: Beside,
): ServicePortStatus {
  const [namespace = "", name = ""] = view.service.split("/");
  const { state, reason } = stateOf(family, view, beside);
  const serving = target?.serving ?? [];
  return {
    namespace,
    name,
    portName: view.portName,
    protocol: view.protocol,
    port: view.port,
    family,
    ...(view.clusterIP !== undefined && { clusterIP: view.clusterIP }),
    externalIPs: view.externalIPs,
    loadBalancerIPs: view.loadBalancerIPs,
    nodePort: view.nodePort,
    internalTrafficPolicy: policy(view.internalPolicyLocal),
    externalTrafficPolicy: policy(view.externalPolicyLocal),
    affinitySeconds: view.affinitySeconds,
    serving: serving.filter(Boolean).length,
    total: serving.length,
    ...(port !== undefined && { connections: port.connections }),
    state,
    ...(reason !== undefined && { reason }),
    ...(beside.details && target !== undefined && { endpoints: endpointsOf(view, target, port?.endpoints) }),
  };
}

function policy(local: boolean): "Cluster" | "Local" {
  return local ? "Local" : "Cluster";
}

/** The worst that is to be said of it. */
function stateOf(
  family: IpFamily,
  view: ServicePortView,
  { states, lost }: Beside,
): { readonly state: ServiceState; readonly reason?: string } {
  const refusal = states.quarantineReason(family, view.service);
  if (refusal !== undefined) return { state: "quarantined", reason: refusal };
  if (!states.inForce(family)) return { state: "pending", reason: "the rules have not been written since the start" };
  const loss = lost.get(view.service);
  if (loss !== undefined) return { state: "shadowed", reason: loss };
  if (!view.hasAnyEndpoint) return { state: "rejected", reason: "no endpoint on any node is ready" };
  return { state: "in-force" };
}

function rateOf(
  port: PortConnections | undefined,
  { intervalMs }: ServiceConnections,
): Pick<ServicePortStatus, "connectionsPerSecond"> {
  // One that began anew has none.
  if (port === undefined || intervalMs === undefined || port.connections < port.before) return {};
  return { connectionsPerSecond: Math.round(((port.connections - port.before) / intervalMs) * 1e5) / 100 };
}

function endpointsOf(
  view: ServicePortView,
  target: ServiceTarget,
  counted: ReadonlyMap<string, number> | undefined,
): EndpointStatus[] {
  const cluster = sharesIn(view.clusterEndpoints, view);
  const local = sharesIn(view.localEndpoints, view);
  return target.endpoints.map((endpoint, i) => {
    const key = `${endpoint.address} ${endpoint.port}`;
    const shares = { clusterShare: cluster.get(key) ?? 0, localShare: local.get(key) ?? 0 };
    const connections = counted === undefined ? {} : { connections: counted.get(key) ?? 0 };
    const draining = target.draining?.[i] === true ? { draining: true } : {};
    return { ...endpoint, serving: target.serving[i] ?? false, ...draining, ...shares, ...connections };
  });
}

/** By "address port": of new connections that draw from the list. */
function sharesIn(list: EndpointList, { balance }: ServicePortView): ReadonlyMap<string, number> {
  const weights = balance && weightsOf(list, balance);
  const total = weights?.reduce((sum, weight) => sum + weight, 0) ?? list.length;
  let index = 0;
  return new Map(Array.from(list, ({ address, port }) => [`${address} ${port}`, (weights?.[index++] ?? 1) / total]));
}

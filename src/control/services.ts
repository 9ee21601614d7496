/** Services as an operator asks for them, from the model as it is now. */
import { TimeSlice } from "../base/time-slice.js";
import type { EndpointList } from "../model/endpoints.js";
import type { ServiceModel } from "../model/index.js";
import type { IpFamily, ServicePortView, ServiceTarget } from "../model/types.js";
import type { EndpointStatus, ServicePortStatus, ServiceState } from "./types.js";

export type ListedModel = Pick<ServiceModel, "services" | "views" | "targets" | "lostClaims">;

/** A service's state in the kernel, which its objects do not tell. */
export interface ServiceStates {
  /** Written at least once since the start. */
  inForce(family: IpFamily): boolean;
  /** Why the kernel refuses "namespace/name"; undefined: it does not. */
  quarantineReason(family: IpFamily, service: string): string | undefined;
}

/** All service ports of the families, by name; the event loop gets its turns meanwhile. */
export async function listServices(
  model: ListedModel,
  families: readonly IpFamily[],
  states: ServiceStates,
): Promise<ServicePortStatus[]> {
  const slice = new TimeSlice();
  const lost = lossesByService(model);
  const names = [...model.services()].sort();
  const found: ServicePortStatus[] = [];
  for (const service of names) {
    for (const family of families) found.push(...portsOf(model, family, service, { states, lost, details: false }));
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
): ServicePortStatus[] {
  const lost = lossesByService(model);
  return families.flatMap((family) => portsOf(model, family, service, { states, lost, details: true }));
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
  readonly details: boolean;
}

function portsOf(model: ListedModel, family: IpFamily, service: string, beside: Beside): ServicePortStatus[] {
  const targets = new Map(model.targets(family, service).map((target) => [target.id, target]));
  return model.views(family, service).map((view) => statusOf(family, view, targets.get(view.id), beside));
}

function statusOf(
  family: IpFamily,
  view: ServicePortView,
  target: ServiceTarget | undefined,
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
    state,
    ...(reason !== undefined && { reason }),
    ...(beside.details && target !== undefined && { endpoints: endpointsOf(view, target) }),
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

function endpointsOf(view: ServicePortView, target: ServiceTarget): EndpointStatus[] {
  const cluster = sharesIn(view.clusterEndpoints);
  const local = sharesIn(view.localEndpoints);
  return target.endpoints.map((endpoint, i) => {
    const key = `${endpoint.address} ${endpoint.port}`;
    const shares = { clusterShare: cluster.get(key) ?? 0, localShare: local.get(key) ?? 0 };
    return { ...endpoint, serving: target.serving[i] ?? false, ...shares };
  });
}

/** By "address port": of new connections that draw from the list. */
function sharesIn(list: EndpointList): ReadonlyMap<string, number> {
  return new Map(Array.from(list, ({ address, port }) => [`${address} ${port}`, 1 / list.length]));
}

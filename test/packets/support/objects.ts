/**
 * Kubernetes objects for the packet tests, from short descriptions. A service's number `n` determines all its addresses, in both families,
 * and its node port. By default a service is served in every way there is, over TCP, UDP and SCTP.
 */
import type { V1EndpointSlice, V1Node, V1Service, V1ServiceCIDR } from "@kubernetes/client-node";

import type { Transport } from "../../lab/agent.ts";
import { type AddressPair, FAMILIES, type Family, type Lab, PLAN } from "../../lab/topology.ts";

export const NODE = "node-1";
export const REMOTE_NODE = "node-2";
export const ZONE = "zone-1";
export const NAMESPACE = "default";
export const TRANSPORTS: readonly Transport[] = ["tcp", "udp", "sctp"];
/** Default port of every service and of every pod's servers. */
export const SERVICE_PORT = 80;
export const POD_PORT = 8080;

/** A manifest as written to the file; tests may write what the types forbid. */
export type Manifest = Record<string, unknown>;

export interface EndpointSpec {
  readonly pod: string;
  readonly ready?: boolean;
  readonly serving?: boolean;
  readonly terminating?: boolean;
  readonly forNodes?: readonly string[];
  readonly forZones?: readonly string[];
  readonly zone?: string;
  /** Name of the Pod object. By default the slice names none. */
  readonly named?: string;
}

export interface ServiceSpec {
  readonly name: string;
  /** 1 to 99, unique in a set of manifests. */
  readonly n: number;
  readonly endpoints: ReadonlyArray<string | EndpointSpec>;
  readonly protocols?: readonly Transport[];
  readonly families?: readonly Family[];
  readonly internal?: "Cluster" | "Local";
  readonly external?: "Cluster" | "Local";
  readonly ranges?: readonly string[];
  /** ClientIP affinity with this timeout. */
  readonly affinitySeconds?: number;
  /** Merged over the finished spec. */
  readonly spec?: Manifest;
  /** Merged over the finished metadata. */
  readonly metadata?: Manifest;
  /** Replaces the finished status. */
  readonly status?: Manifest;
}

/** The address and port of a probe. */
export interface Target {
  readonly name: string;
  readonly address: AddressPair;
  readonly port: number;
}

const hex = (n: number): string => n.toString(16);

export const clusterAddress = (n: number): AddressPair => ({
  ip: `10.96.1.${n}`,
  ip6: `fd00:10:96::${hex(0x100 + n)}`,
});
export const loadBalancerAddress = (n: number): AddressPair => ({
  ip: `203.0.113.${n}`,
  ip6: `2001:db8:cb::${hex(n)}`,
});
export const externalAddress = (n: number): AddressPair => ({
  ip: `203.0.113.${100 + n}`,
  ip6: `2001:db8:cb::1:${hex(n)}`,
});
export const nodePortOf = (n: number): number => 30000 + n;

export function clusterIP(service: ServiceSpec, port = SERVICE_PORT): Target {
  return { name: `ClusterIP ${service.name}:${port}`, address: clusterAddress(service.n), port };
}
export function loadBalancer(service: ServiceSpec, port = SERVICE_PORT): Target {
  return { name: `LB ${service.name}:${port}`, address: loadBalancerAddress(service.n), port };
}
export function externalIP(service: ServiceSpec, port = SERVICE_PORT): Target {
  return { name: `external IP ${service.name}:${port}`, address: externalAddress(service.n), port };
}
export function nodePort(service: ServiceSpec, address: AddressPair = PLAN.node): Target {
  return { name: `node port ${service.name} at ${address.ip}`, address, port: nodePortOf(service.n) };
}
/** Every way in that externalTrafficPolicy governs. */
export function externals(service: ServiceSpec): readonly Target[] {
  return [loadBalancer(service), externalIP(service), nodePort(service)];
}
export function everyWay(service: ServiceSpec): readonly Target[] {
  return [clusterIP(service), ...externals(service)];
}
export function target(name: string, address: AddressPair, port: number): Target {
  return { name, address, port };
}

export function serviceObject(spec: ServiceSpec): Manifest {
  const { name, n, families = FAMILIES, protocols = TRANSPORTS } = spec;
  const ports = protocols.map((protocol) => ({
    name: protocol,
    protocol: protocol.toUpperCase(),
    port: SERVICE_PORT,
    targetPort: POD_PORT,
    nodePort: nodePortOf(n),
  }));
  const pick = (pair: AddressPair): string[] => families.map((family) => pair[family]);
  const service: V1Service = {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name, namespace: NAMESPACE },
    spec: {
      type: "LoadBalancer",
      clusterIP: clusterAddress(n)[families[0]],
      clusterIPs: pick(clusterAddress(n)),
      ipFamilies: families.map((family) => (family === "ip" ? "IPv4" : "IPv6")),
      ipFamilyPolicy: families.length === 2 ? "RequireDualStack" : "SingleStack",
      ports,
      externalIPs: pick(externalAddress(n)),
      internalTrafficPolicy: spec.internal ?? "Cluster",
      externalTrafficPolicy: spec.external ?? "Cluster",
      ...(spec.ranges ? { loadBalancerSourceRanges: [...spec.ranges] } : {}),
      ...(spec.affinitySeconds === undefined
        ? {}
        : {
            sessionAffinity: "ClientIP",
            sessionAffinityConfig: { clientIP: { timeoutSeconds: spec.affinitySeconds } },
          }),
    },
    status: { loadBalancer: { ingress: pick(loadBalancerAddress(n)).map((ip) => ({ ip, ipMode: "VIP" })) } },
  };
  const object = service as unknown as Manifest;
  return {
    ...object,
    metadata: { ...(object["metadata"] as Manifest), ...spec.metadata },
    spec: { ...(object["spec"] as Manifest), ...spec.spec },
    status: spec.status ?? object["status"],
  };
}

/** The conditions of an endpoint, as the endpoint slice controller writes them for a running pod. */
function endpointObject(lab: Lab, family: Family, given: string | EndpointSpec): Manifest {
  const spec: EndpointSpec = typeof given === "string" ? { pod: given, ready: true, serving: true } : given;
  const pod = lab.pod(spec.pod);
  const { forNodes, forZones } = spec;
  const hints = {
    ...(forNodes ? { forNodes: forNodes.map((name) => ({ name })) } : {}),
    ...(forZones ? { forZones: forZones.map((name) => ({ name })) } : {}),
  };
  const conditions = Object.fromEntries(
    (["ready", "serving", "terminating"] as const).flatMap((key) =>
      spec[key] === undefined ? [] : [[key, spec[key]]],
    ),
  );
  return {
    addresses: [pod.address[family]],
    nodeName: pod.on === "node" ? NODE : REMOTE_NODE,
    zone: spec.zone,
    ...(spec.named === undefined ? {} : { targetRef: { kind: "Pod", name: spec.named } }),
    ...(Object.keys(conditions).length > 0 ? { conditions } : {}),
    ...(Object.keys(hints).length > 0 ? { hints } : {}),
  };
}

/**
 * Successive endpoint lists of a service while pods come and go: leaving pods terminate first and still answer packets in flight. Once they
 * are gone, so are their UDP and SCTP flows.
 */
export function handover(before: readonly string[], after: readonly string[]): ReadonlyArray<ServiceSpec["endpoints"]> {
  const leaving = before
    .filter((pod) => !after.includes(pod))
    .map((pod): EndpointSpec => ({ pod, ready: false, serving: true, terminating: true }));
  return leaving.length === 0 ? [after] : [[...after, ...leaving], after];
}

export interface SliceSpec {
  readonly name: string;
  readonly service: string;
  readonly family: Family;
  readonly endpoints: ReadonlyArray<string | EndpointSpec>;
  readonly protocols?: readonly Transport[];
  readonly port?: number;
}

export function sliceObject(lab: Lab, spec: SliceSpec): Manifest {
  const { name, service, family, endpoints, protocols = TRANSPORTS, port = POD_PORT } = spec;
  const slice: V1EndpointSlice = {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { name, namespace: NAMESPACE, labels: { "kubernetes.io/service-name": service } },
    addressType: family === "ip" ? "IPv4" : "IPv6",
    ports: protocols.map((protocol) => ({ name: protocol, protocol: protocol.toUpperCase(), port })),
    endpoints: [],
  };
  return { ...(slice as unknown as Manifest), endpoints: endpoints.map((e) => endpointObject(lab, family, e)) };
}

/** A service with one slice in each of its families. */
export function serviceObjects(lab: Lab, spec: ServiceSpec): Manifest[] {
  const { name, families = FAMILIES, protocols = TRANSPORTS, endpoints } = spec;
  const slices = families.map((family) =>
    sliceObject(lab, { name: `${name}-${family}`, service: name, family, endpoints, protocols }),
  );
  return [serviceObject(spec), ...slices];
}

export interface NodeSpec {
  readonly zone?: string | null;
  readonly addresses?: readonly string[];
}

export function nodeObject(spec: NodeSpec = {}): Manifest {
  const { zone = ZONE, addresses = [PLAN.node.ip, PLAN.node.ip6] } = spec;
  const node: V1Node = {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: NODE, labels: zone === null ? {} : { "topology.kubernetes.io/zone": zone } },
    spec: { podCIDR: PLAN.podCIDR.ip, podCIDRs: [PLAN.podCIDR.ip, PLAN.podCIDR.ip6] },
    status: { addresses: addresses.map((address) => ({ type: "InternalIP", address })) },
  };
  return node as unknown as Manifest;
}

export function serviceCIDRObject(): Manifest {
  const object: V1ServiceCIDR = {
    apiVersion: "networking.k8s.io/v1",
    kind: "ServiceCIDR",
    metadata: { name: "kubernetes" },
    spec: { cidrs: [PLAN.serviceCIDR.ip, PLAN.serviceCIDR.ip6] },
  };
  return object as unknown as Manifest;
}

/** A KubeProxyConfiguration for the lab's node; a detector by cluster CIDR unless `settings` says otherwise. */
export function configuration(settings: Manifest = {}): Manifest {
  return {
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    mode: "nftables",
    hostnameOverride: NODE,
    clusterCIDR: `${PLAN.clusterCIDR.ip},${PLAN.clusterCIDR.ip6}`,
    ...settings,
  };
}

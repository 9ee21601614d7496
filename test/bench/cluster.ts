/**
 * Clusters of any size as API objects, for benchmarks: `services` ClusterIP services with `endpoints` ready endpoints each, on other nodes.
 */
import type { V1EndpointSlice, V1Service } from "@kubernetes/client-node";

function ipv4(base: number, offset: number): string {
  const address = base + offset;
  return [address >>> 24, (address >>> 16) & 255, (address >>> 8) & 255, address & 255].join(".");
}

const SERVICE_BASE = 0x0a600001; // 10.96.0.1
const LOAD_BALANCER_BASE = 0x0a700001; // 10.112.0.1
const POD_BASE = 0x0b000001; // 11.0.0.1: room for millions of pods

export function serviceName(index: number): string {
  return `svc-${index}`;
}

/** The IPv6 address with the same last 32 bits. */
export function ipv6(address: string): string {
  const [a, b, c, d] = address.split(".").map(Number);
  return `fd00::${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
}

/** The cluster IP of service `index`. */
export function clusterIPOf(index: number): string {
  return ipv4(SERVICE_BASE, index);
}

/** The load balancer's address of service `index`, on roads. */
export function loadBalancerOf(index: number): string {
  return ipv4(LOAD_BALANCER_BASE, index);
}

const NODE_PORTS = 20_000;
/** The node port of service `index`, on roads. Services share the ports if there are more of them than ports. */
export function nodePortOf(index: number): number {
  return 30_000 + (index % NODE_PORTS);
}

/** The address of the pod with this number. */
export function podAddress(pod: number): string {
  return ipv4(POD_BASE, pod);
}

export type Protocol = "TCP" | "UDP";

export function makeService(index: number, protocol: Protocol = "TCP"): V1Service {
  const clusterIP = clusterIPOf(index);
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: {
      name: serviceName(index),
      namespace: "bench",
      creationTimestamp: new Date(1_700_000_000_000 + index * 1000),
    },
    spec: {
      type: "ClusterIP",
      clusterIP,
      clusterIPs: [clusterIP],
      ipFamilies: ["IPv4"],
      ports: [{ name: "http", port: 80, protocol, targetPort: 8080 }],
    },
  };
}

/** Slice of service `index` with the pods numbered `pods`. */
export function makeSlice(index: number, pods: readonly number[], protocol: Protocol = "TCP"): V1EndpointSlice {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      name: `${serviceName(index)}-a`,
      namespace: "bench",
      labels: { "kubernetes.io/service-name": serviceName(index) },
    },
    addressType: "IPv4",
    ports: [{ name: "http", port: 8080, protocol }],
    endpoints: pods.map((pod) => ({
      addresses: [podAddress(pod)],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: `node-${pod % 100}`,
      zone: `zone-${(pod % 100) % 3}`,
      targetRef: {
        kind: "Pod",
        namespace: "bench",
        name: `${serviceName(index)}-7d4b9c6d5f-${pod.toString(36).padStart(5, "0")}`,
      },
    })),
  };
}

/** Numbers of the pods of service `index`. */
export function podsOf(index: number, endpoints: number): number[] {
  return Array.from({ length: endpoints }, (_, i) => index * endpoints + i);
}

/** A pod number that no service of the cluster uses. */
export function freshPod(services: number, endpoints: number, serial: number): number {
  return services * endpoints + serial;
}

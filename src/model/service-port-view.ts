/**
 * The meaning of Services, independent of nf_tables. A `ServicePortView` is everything that the ruleset of one family needs to
 * know about one service port. It is recomputed only if its own service changes.
 */

import { type Protocol } from "../base/protocols.js";
import type { EndpointBalance } from "./balance/endpoint-balance.js";
import type { Limits } from "../objects/connection-limits.js";
import type { EndpointList } from "../objects/endpoint-list.js";
import type { PortAddresses, ServiceAddress } from "./service-address.js";
import type { Endpoint } from "../objects/endpoint-list.js";

/** The endpoints of a service port for new connections, without order. */
export interface EndpointLists {
  /**
   * For policy Cluster: the ready endpoints, narrowed by topology hints. If no endpoint on any node is ready, the serving and
   * terminating ones, without regard to hints. Empty if not needed.
   */
  readonly clusterEndpoints: EndpointList;
  /**
   * For policy Local: the ready endpoints on this node. If there are none, the serving and terminating ones on it. Empty if no
   * policy is Local.
   */
  readonly localEndpoints: EndpointList;
  /**
   * Whether any endpoint on any node is ready, or serving and terminating. If false, connections are rejected. If true, those
   * that would draw from an empty list are dropped.
   */
  readonly hasAnyEndpoint: boolean;
}

/** A service port in one family, with only the addresses that it may serve, because no other service has them. */
export interface ServicePortView extends PortAddresses, EndpointLists {
  /** "namespace/name". */
  readonly service: string;
  readonly portName: string;
  readonly internalPolicyLocal: boolean;
  readonly externalPolicyLocal: boolean;
  /** CIDRs of this family that may reach the load-balancer IPs. Absent if all clients may. */
  readonly sourceRanges?: readonly string[];
  /** VIPs that the source ranges of other services also guard. Absent if there are none. */
  readonly guards?: readonly SharedGuard[];
  /** 0 for no affinity. */
  readonly affinitySeconds: number;
  /** Absent if endpoints are chosen at random with equal chances. Never set together with affinity. */
  readonly balance?: EndpointBalance;
  /** Absent if connections are not limited. */
  readonly limits?: Limits;
  /** Whether to reset connections to removed endpoints. Only true for TCP. */
  readonly resetRemovedEndpoints: boolean;
}

/** "namespace/name:port/PROTOCOL", unique within a family; "namespace/name/PROTOCOL" if the port has no name. */
export function portId({
  service,
  portName,
  protocol,
}: Pick<ServicePortView, "service" | "portName" | "protocol">): string {
  return `${service}${portName === "" ? "" : `:${portName}`}/${protocol}`;
}

/** Source ranges of other services that claim an address as a load-balancer IP. A packet must be in the ranges of every service. */
export interface SharedGuard {
  readonly address: string;
  readonly sources: readonly {
    readonly sourceRanges: readonly string[];
    readonly loadBalancerIPs: readonly string[];
  }[];
}

/** Addresses that passed from one service to another that had also claimed them. */
export interface Transfer {
  /** The new holder, "namespace/name". */
  readonly service: string;
  readonly from: string;
  readonly reason: string;
  /** For example "192.0.2.1:80/TCP" or "IPv4 node port 30080/TCP". */
  readonly claims: readonly string[];
}

/** The parts of a service port that matter for existing connections, so neither policies nor hints. */
export interface ServiceTarget {
  /** "namespace/name". */
  readonly service: string;
  /** The result of `portId`. */
  readonly id: string;
  readonly protocol: Protocol;
  readonly port: number;
  /** Cluster IP, external IPs and load-balancer IPs that it may serve, canonical. */
  readonly addresses: readonly string[];
  /** 0 for none. */
  readonly nodePort: number;
  /** Whether to reset connections to removed endpoints. Only true for TCP. */
  readonly resetRemovedEndpoints: boolean;
  /** All endpoints in slices, in any state. */
  readonly endpoints: readonly Endpoint[];
  /** How long connections to a draining endpoint are kept. 0: until it is gone. */
  readonly drainSeconds: number;
  /** Whether each endpoint drains (`drainingAmong`). Undefined if none does, or if not requested. */
  readonly draining: readonly boolean[] | undefined;
  /** Whether each endpoint takes traffic, because it is ready or serving, terminating or not. */
  readonly serving: readonly boolean[];
}

/** An address that a service had until now, and that no service has now. */
export interface RemovedAddress {
  readonly address: ServiceAddress;
  /** "namespace/name" of the former owner. */
  readonly service: string;
  /** "address port" of the endpoints that its connections may have gone to. Undefined if unknown: any endpoint is possible. */
  readonly endpoints: ReadonlySet<string> | undefined;
}

/** This node's answer to a load balancer about a service in one family (spec.healthCheckNodePort). */
export interface HealthCheck {
  readonly port: number;
  /** metadata.uid of the Service, or "" if the object has none. */
  readonly uid: string;
  /**
   * Number of distinct addresses of ready endpoints on this node, over all ports. Terminating endpoints do not count, even if they
   * still get traffic, because the load balancer should use other nodes.
   */
  readonly localEndpoints: number;
}

/** Number of services and endpoints that a family serves (ServiceModel.counts). */
export interface ServedCounts {
  /** Services with a ClusterIP of the family. */
  readonly services: number;
  /** Ready endpoints in the slices of these services. */
  readonly endpoints: number;
}

/** A part of an object that cannot be served. Each is reported once. */
export interface Problem {
  /** "Service", "EndpointSlice", "Node", "ServiceCIDR". */
  readonly kind: string;
  /** "namespace/name", or the name of a cluster-wide object. */
  readonly object: string;
  /** Path of the field: "spec.externalIPs[1]". */
  readonly field: string;
  readonly reason: string;
  /** Set if the field is valid but by rule not served, so that nothing is missing. */
  readonly refused?: true;
}

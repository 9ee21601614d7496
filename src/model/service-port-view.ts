/**
 * The meaning of Services, without a word of nf_tables. One `ServicePortView` is all that the ruleset of one family needs to
 * know of one service port; it is recomputed only when its own service changes.
 */

import type { IpFamily } from "../base/ip.js";
import { type Protocol } from "../base/protocols.js";
import type { EndpointBalance } from "./balance/endpoint-balance.js";
import type { Limits } from "../objects/limits.js";
import type { EndpointList } from "../objects/endpoint-list.js";
import type { PortAddresses, ServiceAddress } from "./service-address.js";
import type { Endpoint } from "../objects/endpoint-list.js";

/** A service port as one family serves it, with the clash rule already applied: only what this service port may serve. */
export interface ServicePortView extends PortAddresses {
  /** "namespace/name". */
  readonly service: string;
  readonly portName: string;
  readonly internalPolicyLocal: boolean;
  readonly externalPolicyLocal: boolean;
  /** CIDRs of this family that may reach the load-balancer IPs; absent: everybody. */
  readonly sourceRanges?: readonly string[];
  /** VIPs that the source ranges of other services guard as well; absent: none. */
  readonly guards?: readonly SharedGuard[];
  /** 0: no affinity. */
  readonly affinitySeconds: number;
  /** Absent: by chance, all endpoints alike. Never beside affinity. */
  readonly balance?: EndpointBalance;
  /** Absent: any number of connections. */
  readonly limits?: Limits;
  /** Policy Cluster draws from these. No order. */
  readonly clusterEndpoints: EndpointList;
  /** Policy Local draws from these; empty also when no policy is Local. No order. */
  readonly localEndpoints: EndpointList;
  /** False: reject (no usable endpoint on any node). True with an empty list: drop. */
  readonly hasAnyEndpoint: boolean;
  /** TCP connections to an endpoint that is gone are to be reset; false for other protocols. */
  readonly resetRemovedEndpoints: boolean;
}

/** Services with source ranges that claim an address too, as a load-balancer IP: every one of them must let a packet in. */
export interface SharedGuard {
  readonly address: string;
  readonly sources: readonly {
    readonly sourceRanges: readonly string[];
    readonly loadBalancerIPs: readonly string[];
  }[];
}

/** Claims that passed from one service to another, which had claimed them too. */
export interface TakeOver {
  /** "namespace/name" of who has them now. */
  readonly service: string;
  readonly from: string;
  readonly reason: string;
  /** "192.0.2.1:80/TCP", "IPv4 node port 30080/TCP". */
  readonly claims: readonly string[];
}

/** What of one service port matters to connections that exist already: neither policies nor hints. */
export interface ServiceTarget {
  /** "namespace/name". */
  readonly service: string;
  /** Of `portId`. */
  readonly id: string;
  readonly protocol: Protocol;
  readonly port: number;
  /** Cluster IP, external IPs and load-balancer IPs that it may serve, canonical. */
  readonly addresses: readonly string[];
  /** 0: none. */
  readonly nodePort: number;
  /** TCP connections to an endpoint that is gone are to be reset; false for other protocols. */
  readonly resetRemovedEndpoints: boolean;
  /** Every endpoint that some slice names, in whatever state. */
  readonly endpoints: readonly Endpoint[];
  /** How long connections to an endpoint that terminates are kept; 0: until it is gone. */
  readonly drainSeconds: number;
  /** For each endpoint: it terminates and is in no list, so that it gets no new connections. Undefined: none of them, or it is not asked for. */
  readonly draining: readonly boolean[] | undefined;
  /** For each of them: it takes traffic, be it that it is ready or that it is serving, terminating or not. */
  readonly serving: readonly boolean[];
}

/** Endpoints of one service that took traffic, and do no more. */
export interface ReleasedEndpoints {
  readonly family: IpFamily;
  /** "namespace/name". */
  readonly service: string;
  /** Empty when endpoints only came. */
  readonly endpoints: readonly (Pick<Endpoint, "address" | "port"> & { readonly protocol: Protocol })[];
}

/** What services gave up since it was last asked for. */
export interface Released {
  /** Addresses that a service had until now, and that no service has now. */
  readonly addresses: readonly {
    readonly address: ServiceAddress;
    /** "namespace/name" of the former owner. */
    readonly service: string;
    /** "address port" of the endpoints that its connections may have gone to. Undefined if unknown: any endpoint is possible. */
    readonly endpoints: ReadonlySet<string> | undefined;
  }[];
  /** "namespace/name" of the services of which more changed than slices that were there. */
  readonly changed: readonly string[];
  /** Of the other services that changed. */
  readonly endpoints: readonly ReleasedEndpoints[];
}

/** What a load balancer asks this node about a service, in one family: spec.healthCheckNodePort. */
export interface HealthCheck {
  readonly port: number;
  /** metadata.uid of the Service; "" when the object does not say. */
  readonly uid: string;
  /**
   * Distinct addresses of ready endpoints on this node, over all ports. One that is terminating does not count, even
   * where traffic still goes to it: the load balancer shall look elsewhere.
   */
  readonly localEndpoints: number;
}

/** How much a family serves: ServiceModel.counts. */
export interface ServedCounts {
  /** Services with a ClusterIP of the family. */
  readonly services: number;
  /** Ready endpoints in the slices of these services. */
  readonly endpoints: number;
}

/** Something in an object that cannot be served, said once. */
export interface Problem {
  /** "Service", "EndpointSlice", "Node", "ServiceCIDR". */
  readonly kind: string;
  /** "namespace/name", or the name of a cluster-wide object. */
  readonly object: string;
  /** Path of the field: "spec.externalIPs[1]". */
  readonly field: string;
  readonly reason: string;
  /** The field is understood, and not to be served by rule: nothing is missing. */
  readonly refused?: true;
}

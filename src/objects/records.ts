/** Records of objects: only the fields that matter, decoded once by the source. */
import { isDeepStrictEqual } from "node:util";
import type { IpFamily, Prefix } from "../base/ip.js";
import type { Balance } from "./balance.js";
import type { Hints } from "./endpoint-state.js";
import type { EndpointDetails } from "./endpoint-details.js";
import type { EndpointList } from "./endpoint-list.js";
import type { Limits } from "./connection-limits.js";
import type { Protocol } from "../base/protocols.js";

export interface ServicePortRecord {
  readonly name: string;
  readonly protocol: Protocol;
  readonly port: number;
  /** 0: none. */
  readonly nodePort: number;
}

/** The service in one family. No address is in more than one of the three places. */
export interface FamilyRecord {
  readonly clusterIP: string;
  readonly externalIPs: readonly string[];
  readonly loadBalancerIPs: readonly string[];
  /** Undefined if every client is allowed; empty if none is. */
  readonly sourceRanges: readonly string[] | undefined;
}

export interface ServiceRecord {
  /** "namespace/name". */
  readonly name: string;
  /** metadata.uid; "" if the object has none. */
  readonly uid: string;
  /** Milliseconds since 1970; Infinity if the object has no creation time. */
  readonly created: number;
  readonly ports: readonly ServicePortRecord[];
  readonly ip: FamilyRecord | undefined;
  readonly ip6: FamilyRecord | undefined;
  readonly internalPolicyLocal: boolean;
  readonly externalPolicyLocal: boolean;
  /** 0: no affinity. */
  readonly affinitySeconds: number;
  /** Annotation nft-proxier.dev/balance and related ones; undefined if the choice is random and all endpoints are alike. */
  readonly balance: Balance | undefined;
  /** Annotation nft-proxier.dev/max-connections and related ones; undefined if there are none. */
  readonly limits: Limits | undefined;
  /** Annotation nft-proxier.dev/reset-removed-endpoints: reset TCP connections to a removed endpoint. */
  readonly resetRemovedEndpoints: boolean;
  /** Annotation nft-proxier.dev/drain-seconds: how long connections to a terminating endpoint are kept; 0: until it is gone. */
  readonly drainSeconds: number;
  /**
   * Port on which a load balancer asks this node about the service; 0: none. Only services of type LoadBalancer with an
   * external policy Local have one.
   */
  readonly healthCheckPort: number;
}

/** Whether two records of a service are equal. Called for every service that arrives again, changed or not. */
export function sameService(a: ServiceRecord, b: ServiceRecord): boolean {
  if (a.ports.length !== b.ports.length) return false;
  // isDeepStrictEqual would take ten times as long, and there may be tens of thousands of services.
  for (let i = 0; i < a.ports.length; i++) {
    const [x, y] = [a.ports[i], b.ports[i]];
    if (x.name !== y.name || x.protocol !== y.protocol || x.port !== y.port || x.nodePort !== y.nodePort) return false;
  }
  return isDeepStrictEqual({ ...a, ports: undefined }, { ...b, ports: undefined });
}

export interface SlicePort {
  readonly name: string;
  readonly protocol: Protocol;
  readonly port: number;
}

/** Endpoints of a slice, or of a service port, in any state: parallel arrays. */
export interface EndpointColumns {
  readonly endpoints: EndpointList;
  /** READY | SERVING | TERMINATING. */
  readonly states: readonly number[];
  /** Undefined if no endpoint has hints. */
  readonly hints: readonly Hints[] | undefined;
  /** Pods, nodes and zones. Undefined if no slice names any. */
  readonly details: Pick<EndpointDetails, "zone" | "all"> | undefined;
}

export interface SliceRecord extends EndpointColumns {
  /** "namespace/name" of the slice. */
  readonly name: string;
  /** "namespace/name" of its service. */
  readonly service: string;
  readonly family: IpFamily;
  /** At least one. */
  readonly ports: readonly SlicePort[];
  /** With the first of the ports, each address once. Services with one port use this list unchanged. */
  readonly endpoints: EndpointList;
  readonly details: EndpointDetails | undefined;
}

export interface NodeRecord {
  /** The label topology.kubernetes.io/zone; "" if it has none. */
  readonly zone: string;
  /** Whether it has a deletion timestamp. */
  readonly deleted: boolean;
  /** Keys of its taints. */
  readonly taints: readonly string[];
  /** With the field of each. */
  readonly podCIDRs: readonly { readonly field: string; readonly prefix: Prefix }[];
  /** All that are IPs, of any type, canonical, with the field of each. */
  readonly addresses: readonly { readonly field: string; readonly address: string }[];
  /**
   * The Node's own IPs, canonical, with InternalIP before ExternalIP: the first, and the first of the other family
   * (k8s.io/kubernetes/pkg/util/node GetNodeHostIPs).
   */
  readonly hostIPs: readonly string[];
  /** Whether it lists an IP of its own that cannot be read. It may have either family. */
  readonly unreadableIP: boolean;
}

/** The result that a source passes on for an object. */
interface Decoded<Kind extends string, ObjectRecord> {
  readonly kind: Kind;
  /** "namespace/name", or only the name for cluster-wide kinds. */
  readonly name: string;
  /** Undefined if there is nothing to serve. */
  readonly record: ObjectRecord | undefined;
  /** Parts that cannot be served: reasons by field. Undefined if there are none. */
  readonly problems: ReadonlyMap<string, string> | undefined;
  /** Fields among them that are understood, but not served by rule. */
  readonly refused?: ReadonlySet<string>;
}

interface ServiceObject extends Decoded<"Service", ServiceRecord> {
  /** Why it is not served by rule, as a clause about it. */
  readonly skipped?: string;
}

export interface SliceObject extends Decoded<"EndpointSlice", SliceRecord> {
  /** Whether its family is one of the two, and it belongs to a service. kube-proxy skips other slices before it counts. */
  readonly counted: boolean;
  /**
   * When the Pod or Service change happened that led to this version (annotation
   * endpoints.kubernetes.io/last-change-trigger-time). Undefined if the slice does not have it.
   */
  readonly trigger: { readonly family: IpFamily; /** Unix ms. */ readonly at: number } | undefined;
}

/** The record contains its networks. */
type ServiceCIDRObject = Decoded<"ServiceCIDR", readonly Prefix[]>;

/** The record has what can be read of the Node. */
export type NodeObject = Decoded<"Node", NodeRecord> & { readonly record: NodeRecord };

/** A decoded object. */
export type KubeObject = ServiceObject | SliceObject | ServiceCIDRObject | NodeObject;

export type KubeKind = KubeObject["kind"];

/** Whether two records of a slice are equal. Called for every slice that arrives again, changed or not. */
export function sameSlice(a: SliceRecord, b: SliceRecord): boolean {
  return (
    a.name === b.name &&
    a.service === b.service &&
    a.family === b.family &&
    sameItems(a.ports, b.ports, (x, y) => x.name === y.name && x.protocol === y.protocol && x.port === y.port) &&
    a.endpoints.equals(b.endpoints) &&
    (a.states === b.states || sameItems(a.states, b.states, (x, y) => x === y)) &&
    isDeepStrictEqual(a.hints, b.hints) &&
    sameZones(a, b)
  );
}

/** Both slices must have the same number of endpoints. */
function sameZones({ details: a }: SliceRecord, { details: b, endpoints }: SliceRecord): boolean {
  if (a === undefined ? b === undefined : b !== undefined && a.equals(b)) return true;
  for (let i = 0; i < endpoints.length; i++) if ((a?.zone(i) ?? "") !== (b?.zone(i) ?? "")) return false;
  return true;
}

function sameItems<T>(a: readonly T[], b: readonly T[], same: (x: T, y: T) => boolean): boolean {
  return a.length === b.length && a.every((x, i) => same(x, b[i]));
}

/** Whether two records of a slice name the same pods and nodes. */
export function sameDetails({ details: a }: SliceRecord, { details: b }: SliceRecord): boolean {
  return a === undefined || b === undefined ? a === b : a.equals(b);
}

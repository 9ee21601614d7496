/** What is kept of objects: only what their meaning depends on, decoded once by the source that they come from. */
import { isDeepStrictEqual } from "node:util";
import type { IpFamily, Prefix } from "../base/ip.js";
import type { Balance } from "./balance.js";
import type { Hints } from "./endpoint-state.js";
import type { EndpointDetails } from "./endpoint-details.js";
import type { EndpointList } from "./endpoint-list.js";
import type { Limits } from "./limits.js";
import type { Protocol } from "../base/protocols.js";

export interface ServicePortRecord {
  readonly name: string;
  readonly protocol: Protocol;
  readonly port: number;
  /** 0: none. */
  readonly nodePort: number;
}

/** The service in one family. No address is in two of the three places. */
export interface FamilyRecord {
  readonly clusterIP: string;
  readonly externalIPs: readonly string[];
  readonly loadBalancerIPs: readonly string[];
  /** Undefined: everybody. */
  readonly sourceRanges: readonly string[] | undefined;
}

export interface ServiceRecord {
  /** "namespace/name". */
  readonly name: string;
  /** metadata.uid; "" when the object does not say. */
  readonly uid: string;
  /** Milliseconds since 1970; Infinity when the object does not say. */
  readonly created: number;
  readonly ports: readonly ServicePortRecord[];
  readonly ip: FamilyRecord | undefined;
  readonly ip6: FamilyRecord | undefined;
  readonly internalPolicyLocal: boolean;
  readonly externalPolicyLocal: boolean;
  /** 0: no affinity. */
  readonly affinitySeconds: number;
  /** Annotations nft-proxier.dev/balance and those beside it; undefined: by chance, all endpoints alike. */
  readonly balance: Balance | undefined;
  /** Annotations nft-proxier.dev/max-connections and those beside it; undefined: none. */
  readonly limits: Limits | undefined;
  /** Annotation nft-proxier.dev/reset-removed-endpoints: TCP connections to an endpoint that is gone are to be reset. */
  readonly resetRemovedEndpoints: boolean;
  /** Annotation nft-proxier.dev/drain-seconds: how long connections to an endpoint that terminates are kept; 0: until it is gone. */
  readonly drainSeconds: number;
  /**
   * Where a load balancer asks this node about the service; 0: nowhere. Only one of type LoadBalancer with an external policy
   * Local has such a port.
   */
  readonly healthCheckPort: number;
}

/** Whether two records of a service say the same: asked of every service that comes again, changed or not. */
export function sameService(a: ServiceRecord, b: ServiceRecord): boolean {
  if (a.ports.length !== b.ports.length) return false;
  // By hand: isDeepStrictEqual takes ten times as long, and there may be tens of thousands.
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

export interface SliceRecord {
  /** "namespace/name" of the slice. */
  readonly name: string;
  /** "namespace/name" of its service. */
  readonly service: string;
  readonly family: IpFamily;
  /** At least one. */
  readonly ports: readonly SlicePort[];
  /** With the first of the ports, each address once. Services with one port take them as they are. */
  readonly endpoints: EndpointList;
  /** READY | SERVING | TERMINATING. */
  readonly states: readonly number[];
  /** Undefined when no endpoint has hints. */
  readonly hints: readonly Hints[] | undefined;
  /** Undefined: the slice names neither pods nor nodes nor zones. */
  readonly details: EndpointDetails | undefined;
}

/** What a source hands on of an object. */
interface Decoded<Kind extends string, ObjectRecord> {
  readonly kind: Kind;
  /** "namespace/name", or the name alone for cluster-wide kinds. */
  readonly name: string;
  /** Undefined: nothing in it is to be served. */
  readonly record: ObjectRecord | undefined;
  /** What in it cannot be served: reasons by field; undefined: nothing. */
  readonly problems: ReadonlyMap<string, string> | undefined;
  /** Fields among them that are understood, and not to be served by rule. */
  readonly refused?: ReadonlySet<string>;
}

export type ServiceObject = Decoded<"Service", ServiceRecord>;

export interface SliceObject extends Decoded<"EndpointSlice", SliceRecord> {
  /** It is of one of the two families, and of a service: kube-proxy passes over others before it counts. */
  readonly counted: boolean;
  /**
   * When the Pod or Service change happened that led to this version (annotation
   * endpoints.kubernetes.io/last-change-trigger-time); undefined when the slice does not say.
   */
  readonly trigger: { readonly family: IpFamily; /** Unix ms. */ readonly at: number } | undefined;
}

/** The record is its networks. */
export type ServiceCIDRObject = Decoded<"ServiceCIDR", readonly Prefix[]>;

export type ModelObject = ServiceObject | SliceObject | ServiceCIDRObject;

/** Whether two records of a slice say the same: asked of every slice that comes again, changed or not. */
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

/** Of slices with equally many endpoints. */
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

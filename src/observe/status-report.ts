/**
 * The daemon's answers on its socket. Versioned: fields may be added to v1, but none changes or disappears.
 *
 *     GET /v1/status                     → StatusReport
 *     GET /v1/events                     → EventList
 *     GET /v1/services                   → ServiceList, one item per service port and family
 *     GET /v1/services/NAMESPACE/NAME    → ServiceList of one service, with its endpoints
 *     GET /v1/unserved/NAMESPACE/NAME    → UnservedService, if the service exists
 *     GET /v1/endpoints                  → ServiceList of all services, each with its endpoints
 *     GET /v1/owner/ip|ip6/TCP|UDP|SCTP/PORT[/ADDRESS]
 *                                        → ServiceList of the service that has the port at the address, otherwise of
 *                                          the one with that node port, with its endpoints
 *     GET /v1/diagnosis                  → Diagnosis
 */
import type { ConntrackFill } from "../node/packet-settings.js";
import type { Rate } from "../objects/connection-limits.js";
import type { IpFamily } from "../base/ip.js";
import type { PortAddresses } from "../model/service-address.js";
import type { RefusalReason } from "../ruleset/refusals.js";

export const API_VERSION = "nft-proxier.dev/v1";

/**
 * - active: served as desired
 * - pending: the family has not been written since startup
 * - quarantined: the kernel rejects it
 * - rejected: there is no endpoint on any node, so connections are refused
 * - shadowed: another service has some of its addresses
 * - no-local-endpoint: a traffic policy is Local and there is no endpoint on this node, so it drops the connections that the
 *   policy governs
 */
export const SERVICE_STATES = [
  "active",
  "pending",
  "quarantined",
  "rejected",
  "shadowed",
  "no-local-endpoint",
] as const;
export type ServiceState = (typeof SERVICE_STATES)[number];

export interface EndpointStatus {
  /** Canonical. */
  readonly address: string;
  readonly port: number;
  /** Whether it is on this node. */
  readonly local: boolean;
  /**
   * Its conditions, as in its slice. Ready endpoints take new connections. If there are none, serving and terminating endpoints
   * do.
   */
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
  /** The endpoint terminates, and its connections are kept for the service's drain-seconds. */
  readonly draining?: boolean;
  /**
   * Name of its pod, as "namespace/name" if the namespace is not the service's. This and the next fields are absent if the
   * slice does not contain them.
   */
  readonly pod?: string;
  readonly node?: string;
  readonly zone?: string;
  /** Nodes and zones that the endpoint is intended for (topology hints). */
  readonly forNodes?: readonly string[];
  readonly forZones?: readonly string[];
  /** Share of new connections by policy Cluster, 0 to 1, and by policy Local, 0 if no policy is Local. */
  readonly clusterShare: number;
  readonly localShare: number;
  /** Counted since the endpoint took its place in the service's lists. Absent if endpoints' connections are not counted. */
  readonly connections?: number;
  /** Connections that it refused, with pauses shorter than a minute. Absent if there are none, or they are not counted. */
  readonly refused?: number;
  /** Tracked connections, including those not established yet. The command adds them from the kernel's table. */
  readonly open?: number;
  readonly halfOpen?: number;
  /** Half-open connections that the endpoint has not answered for more than a second. */
  readonly unanswered?: number;
}

/** How a service's connections are spread, if its annotations ask for more than random choice and are in effect. */
export interface BalanceStatus {
  readonly mode: "consistent" | "random";
  /** The part of a connection that decides. Absent if the choice is random. */
  readonly key?: "source-ip" | "source-ip-port";
  /** Slots of the longer list; 0: there is no endpoint. */
  readonly slots: number;
  /** Weights from the annotation; unlisted endpoints have weight 1. Absent if all endpoints are alike. */
  readonly weights?: {
    /** By zone name. */
    readonly zones: Readonly<Record<string, number>>;
    /** By canonical address, of this family. */
    readonly addresses: Readonly<Record<string, number>>;
  };
}

/** Limits of a service port on this node and in this family. */
export interface LimitsStatus {
  /** Maximum of open connections. This and the next two fields are absent if there is no limit. */
  readonly maxConnections?: number;
  /**
   * Tracked connections that are not closed: those that maxConnections counts, and those opened before the limit was set. The
   * command adds the number from the kernel's table.
   */
  readonly open?: number;
  readonly maxConnectionsPerClient?: number;
  readonly ratePerClient?: Rate;
  readonly overLimit: "reject" | "drop";
}

export interface ServicePortStatus extends PortAddresses {
  readonly namespace: string;
  readonly name: string;
  /** "" if the port has no name. */
  readonly portName: string;
  readonly family: IpFamily;
  readonly internalTrafficPolicy: "Cluster" | "Local";
  readonly externalTrafficPolicy: "Cluster" | "Local";
  /** 0: no affinity. */
  readonly affinitySeconds: number;
  /** CIDRs that may reach the load-balancer IPs; empty: no client may. Absent if every client may. */
  readonly sourceRanges?: readonly string[];
  /** Load-balancer IPs that source ranges of other services guard too, with these ranges. Absent if there are none. */
  readonly otherSourceRanges?: readonly { readonly address: string; readonly sourceRanges: readonly string[] }[];
  /** Settings from annotations, as they are in effect; each absent without an annotation. */
  readonly balance?: BalanceStatus;
  readonly limits?: LimitsStatus;
  /** How long connections to a terminating endpoint are kept. */
  readonly drainSeconds?: number;
  /** TCP connections to a removed endpoint are reset. Absent if they are not. */
  readonly resetRemovedEndpoints?: true;
  /** Number of ready endpoints. */
  readonly ready: number;
  /**
   * `serving` counts endpoints that take new connections: the ready ones, or the serving and terminating ones if none is ready.
   * `total` counts all endpoints in the slices.
   */
  readonly serving: number;
  readonly total: number;
  /** Connections that were given an endpoint since the service has been served. Absent if they are not counted. */
  readonly connections?: number;
  /** Between the last two readings. Absent without recent readings. `rateMs` is the time between them. */
  readonly connectionsPerSecond?: number;
  readonly rateMs?: number;
  /**
   * Packets of refused connections, by reason, counted with pauses shorter than an hour (reason `endpoint`: a minute). Absent if there are none, or
   * they are not counted.
   */
  readonly refusals?: Readonly<Partial<Record<RefusalReason, number>>>;
  /** Time since the last of these packets, by reason, ms. */
  readonly refusalAgesMs?: Readonly<Partial<Record<RefusalReason, number>>>;
  /** More addresses were refused than the kernel counts, so `refusals` may lack some. Absent if it does not. */
  readonly refusalsIncomplete?: true;
  readonly state: ServiceState;
  /** Why the port is in this state. Absent if it serves as its objects ask. */
  readonly reason?: string;
  /** Present if they were requested. */
  readonly endpoints?: readonly EndpointStatus[];
}

/** "namespace/name:port". */
export function serviceText({ namespace, name, portName }: ServicePortStatus): string {
  return `${namespace}/${name}${portName === "" ? "" : `:${portName}`}`;
}

/** Clients that may reach the load-balancer IPs, or one of them. Returns undefined if no source range restricts them. */
export function sourceRangesText(
  { sourceRanges, otherSourceRanges = [] }: ServicePortStatus,
  destination?: string,
): string | undefined {
  const text = (ranges: readonly string[]): string =>
    ranges.length === 0 ? "none, so no client is allowed" : ranges.join(", ");
  const others = otherSourceRanges
    .filter(({ address }) => destination === undefined || address === destination)
    .map(({ address, sourceRanges: ranges }) => `for ${address} also those of another service: ${text(ranges)}`);
  const parts = [...(sourceRanges === undefined ? [] : [text(sourceRanges)]), ...others];
  return parts.length === 0 ? undefined : parts.join("; ");
}

/** The order of services in every list: "namespace/name" by namespace, then by name. */
export function compareServices(a: string, b: string): number {
  for (let i = 0; i < a.length && i < b.length; i++) {
    if (a[i] === b[i]) continue;
    // "/" ends a namespace, so it comes before the "-" of a longer one.
    return a[i] === "/" ? -1 : b[i] === "/" ? 1 : a.charCodeAt(i) - b.charCodeAt(i);
  }
  return a.length - b.length;
}

export interface ServiceList {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "ServiceList";
  readonly items: readonly ServicePortStatus[];
}

/** A service that exists, but is not served on this node. */
export interface UnservedService {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "UnservedService";
  /** A clause about the service. */
  readonly reason: string;
}

/** Addresses on which node ports answer in one family. */
export interface NodePortStatus {
  /** "all": every local address except loopback. Absent before the first write. */
  readonly nodePortAddresses?: "all" | readonly string[];
  /** CIDRs of loopback addresses on which they also answer. Absent if there are none. */
  readonly localhostNodePorts?: readonly string[];
}

/** The same in words, to follow "node ports are served on". Returns undefined if unknown. */
export function nodePortPlaces({ nodePortAddresses, localhostNodePorts = [] }: NodePortStatus): string | undefined {
  if (nodePortAddresses === undefined) return undefined;
  if (nodePortAddresses === "all" && localhostNodePorts.length === 0) return "every local address except loopback";
  const named = [...(nodePortAddresses === "all" ? ["every other local address"] : nodePortAddresses)];
  return [...localhostNodePorts, ...named].join(", ") || "no address";
}

/** The answer of /healthz, which load balancers request. */
export interface HealthzStatus {
  readonly code: 200 | 503;
  /** Present with status 503. */
  readonly reason?: string;
}

export interface FamilyStatus extends NodePortStatus {
  readonly family: IpFamily;
  /** Written at least once since startup. */
  readonly inForce: boolean;
  readonly services: number;
  /** Number of ready endpoints. */
  readonly endpoints: number;
  /** Age of the oldest pending change or repair, ms; 0 if none is pending. */
  readonly pendingMs: number;
  /** VIPs and node ports that the kernel still serves from an earlier run. Absent once the family has been written. */
  readonly kernelEntries?: number;
}

/** State of the connection to the API server. */
export interface ApiStatus {
  /** URL. */
  readonly server: string;
  readonly connected: boolean;
  /** Time since its last message, ms: at most a minute if all is well. Absent before the first message. */
  readonly silentMs?: number;
}

/** How far services' packets were checked against other programs' rules. */
export interface FirewallStatus {
  /** Number of checked services, and of all services. */
  readonly checked: number;
  readonly services: number;
  /** Checked services whose packets a rule may drop, with one such rule. The outcome depends on the client or on unknown facts. */
  readonly unjudged: number;
  readonly unjudgedRule?: string;
  /** Parts that were not read: "ip filter (5000 rules)". */
  readonly unread: readonly string[];
}

/** A service, or a port of it, that a problem concerns. */
export interface ConcernedService extends Partial<Pick<ServicePortStatus, "protocol" | "port" | "family">> {
  /** "namespace/name". All of its ports and families, unless other fields name one. */
  readonly service: string;
}

/** Problems that an operator has to know, worst first. */
export interface StatusProblem {
  readonly what: string;
  readonly remedy: string;
  /** Absent if it concerns no service in particular. */
  readonly concerns?: readonly ConcernedService[];
}

/** Another process's change of a table that was reverted. */
export interface LastRepair {
  /** Unix ms. */
  readonly at: number;
  readonly family: IpFamily;
  /** "nft (pid 4711)"; empty if the kernel did not report the process. */
  readonly by: readonly string[];
  /** Descriptions for people. */
  readonly changes: readonly string[];
  /** Time from the first noticed change to the kernel's answer, ms. */
  readonly ms: number;
  /** Number of repairs in the ten minutes that ended with this one. */
  readonly times: number;
}

export interface StatusReport {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "Status";
  /** Versions of the program and of the kernel. */
  readonly version: string;
  readonly kernel: string;
  readonly nodeName: string;
  readonly uptimeMs: number;
  /** The result of /livez: no change has been pending for too long. */
  readonly healthy: boolean;
  /** Absent if no health port is served. */
  readonly healthz?: HealthzStatus;
  readonly families: readonly FamilyStatus[];
  /** Services whose change is not in the desired table yet. */
  readonly pendingServices: number;
  /** Absent if objects come from manifests. */
  readonly api?: ApiStatus;
  /** Absent if the kernel has no connection tracker loaded. */
  readonly conntrack?: ConntrackFill;
  /** Absent if no other program's rules affect services' packets. */
  readonly firewalls?: FirewallStatus;
  /** URL of the status page on this node. Absent if none is served. */
  readonly page?: string;
  /** Features that this kernel lacks, with the consequences; empty if it lacks none. */
  readonly missingFeatures: readonly string[];
  /** Number of objects and fields that cannot be served. */
  readonly ignored: number;
  readonly lastRepair?: LastRepair;
  /** Activities that need no action, in words. Absent if there are none. */
  readonly notes?: readonly string[];
  readonly problems: readonly StatusProblem[];
}

export interface StatusEvent {
  /** Unix ms. */
  readonly at: number;
  readonly type: "normal" | "warning";
  readonly message: string;
}

export interface EventList {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "EventList";
  /** The last few hundred, oldest first. */
  readonly items: readonly StatusEvent[];
}

/** The daemon's part of a bug report. It may contain secrets: `diagnose` removes everything that looks like one. */
export interface Diagnosis {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "Diagnosis";
  /** The active KubeProxyConfiguration. */
  readonly configuration: unknown;
  /** One line "name=value" per flag; "" if there are none. */
  readonly flags: string;
  /** In Prometheus text format. */
  readonly metrics: string;
  /** The last lines of the log, oldest first. */
  readonly log: string;
}

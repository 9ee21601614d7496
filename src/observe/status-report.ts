/**
 * What the daemon answers on its socket. Versioned: fields may be added to v1, none changes or goes.
 *
 *     GET /v1/status                     → StatusReport
 *     GET /v1/events                     → EventList
 *     GET /v1/services                   → ServiceList, a line for each service port and family
 *     GET /v1/table                      → ServiceTable, the same as cells: a third of the bytes
 *     GET /v1/services/NAMESPACE/NAME    → ServiceList of one service, with its endpoints
 *     GET /v1/endpoints                  → ServiceList of all services, each with its endpoints
 *     GET /v1/owner/ip|ip6/TCP|UDP|SCTP/PORT[/ADDRESS]
 *                                        → ServiceList of the service that has the port at the address, or else the node port, with its endpoints
 *     GET /v1/diagnosis                  → Diagnosis
 */
import type { IpFamily } from "../base/ip.js";
import type { Protocol } from "../base/protocols.js";

export const API_VERSION = "nft-proxier.dev/v1";

/**
 * in-force: as desired; pending: the family has not been written since the start; quarantined: the kernel refuses it;
 * rejected: no endpoint on any node, connections are refused; shadowed: another service has some of its addresses;
 * no-local-endpoint: a traffic policy is Local and no endpoint is on this node, which drops the connections that the policy governs.
 */
export type ServiceState = "in-force" | "pending" | "quarantined" | "rejected" | "shadowed" | "no-local-endpoint";

export interface EndpointStatus {
  /** Canonical. */
  readonly address: string;
  readonly port: number;
  /** On this node. */
  readonly local: boolean;
  /** Its conditions, as its slice says. Those that are ready take new connections; where none is, those that serve and terminate. */
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
  /** It terminates, and its connections are kept for the service's drain-seconds. */
  readonly draining?: boolean;
  /** Name of its pod; "namespace/name" where that is not the service's namespace. Absent, as the next ones: not said. */
  readonly pod?: string;
  readonly node?: string;
  readonly zone?: string;
  /** Nodes and zones that it is for. */
  readonly forNodes?: readonly string[];
  readonly forZones?: readonly string[];
  /** Of new connections by policy Cluster, 0 to 1; and by policy Local, 0 where no policy is Local. */
  readonly clusterShare: number;
  readonly localShare: number;
  /** Since it stands where it does in the service's lists; absent: endpoints' connections are not counted. */
  readonly connections?: number;
  /** Tracked connections, open and not yet; the command adds them, from the kernel's table. */
  readonly open?: number;
  readonly halfOpen?: number;
}

/** How a service's connections are spread, where its annotations ask for more than chance and that is in force. */
export interface BalanceStatus {
  readonly mode: "consistent" | "random";
  /** What of a connection decides; absent: chance does. */
  readonly key?: "source-ip" | "source-ip-port";
  /** Of the longer list; 0: there is no endpoint. */
  readonly slots: number;
  /** As the annotation has them; one that is not named has 1. Absent: all endpoints alike. */
  readonly weights?: {
    /** By name of the zone. */
    readonly zones: Readonly<Record<string, number>>;
    /** By canonical address, of this family. */
    readonly addresses: Readonly<Record<string, number>>;
  };
}

/** Limits of a service port, on this node and in this family. */
export interface LimitsStatus {
  /** Open at a time. Absent, as the next two: any number. */
  readonly maxConnections?: number;
  /**
   * Tracked connections that are not closed: those that maxConnections counts, and those that were open before it came. The command adds it,
   * from the kernel's table.
   */
  readonly open?: number;
  readonly maxConnectionsPerClient?: number;
  readonly ratePerClient?: {
    readonly count: number;
    readonly per: "second" | "minute" | "hour";
    /** How many may come at once. */
    readonly burst: number;
  };
  readonly overLimit: "reject" | "drop";
}

export interface ServicePortStatus {
  readonly namespace: string;
  readonly name: string;
  /** "": the port has no name. */
  readonly portName: string;
  readonly protocol: Protocol;
  readonly port: number;
  readonly family: IpFamily;
  readonly clusterIP?: string;
  readonly externalIPs: readonly string[];
  readonly loadBalancerIPs: readonly string[];
  /** 0: none. */
  readonly nodePort: number;
  readonly internalTrafficPolicy: "Cluster" | "Local";
  readonly externalTrafficPolicy: "Cluster" | "Local";
  /** 0: no affinity. */
  readonly affinitySeconds: number;
  /** What annotations ask for, as it is in force; each absent without one. */
  readonly balance?: BalanceStatus;
  readonly limits?: LimitsStatus;
  /** How long connections to an endpoint that terminates are kept. */
  readonly drainSeconds?: number;
  /** TCP connections to an endpoint that is gone are to be reset; absent: they are not. */
  readonly resetRemovedEndpoints?: true;
  /** Endpoints that are ready. */
  readonly ready: number;
  /** Endpoints that take new connections (the ready ones; if there are none, those that serve and terminate), and all that slices name. */
  readonly serving: number;
  readonly total: number;
  /** Connections that were given an endpoint, since the service is served; absent: they are not counted. */
  readonly connections?: number;
  /** Between the last two readings; absent: there were none of late. */
  readonly connectionsPerSecond?: number;
  readonly state: ServiceState;
  /** Why it is in this state; absent if it serves as its objects ask for. */
  readonly reason?: string;
  /** Where they were asked for. */
  readonly endpoints?: readonly EndpointStatus[];
}

export interface ServiceList {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "ServiceList";
  readonly items: readonly ServicePortStatus[];
}

/** Where node ports answer in one family. */
export interface NodePortStatus {
  /** "all": on every local address but loopback. Absent before the first write. */
  readonly nodePortAddresses?: "all" | readonly string[];
  /** CIDRs of loopback addresses where they answer as well. Absent: none. */
  readonly localhostNodePorts?: readonly string[];
}

/** The same in words, behind "node ports answer on"; undefined: not known. */
export function nodePortPlaces({ nodePortAddresses, localhostNodePorts = [] }: NodePortStatus): string | undefined {
  if (nodePortAddresses === undefined) return undefined;
  if (nodePortAddresses === "all" && localhostNodePorts.length === 0) return "every local address but loopback";
  const named = [...(nodePortAddresses === "all" ? ["every other local address"] : nodePortAddresses)];
  return [...localhostNodePorts, ...named].join(", ") || "no address";
}

export interface ServiceTable {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "ServiceTable";
  readonly columns: readonly string[];
  readonly items: readonly (readonly string[])[];
}

/** What /healthz answers, which load balancers ask. */
export interface HealthzStatus {
  readonly code: 200 | 503;
  /** With 503. */
  readonly reason?: string;
}

export interface FamilyStatus extends NodePortStatus {
  readonly family: IpFamily;
  /** Written at least once since the start. */
  readonly inForce: boolean;
  readonly services: number;
  /** Ready ones. */
  readonly endpoints: number;
  /** How long the oldest change, or the table's repair, has waited, ms; 0: none does. */
  readonly pendingMs: number;
  /** VIPs and node ports that the kernel serves from an earlier run. Absent once the family has been written. */
  readonly kernelEntries?: number;
}

/** How the API server is reached. */
export interface ApiStatus {
  /** URL. */
  readonly server: string;
  readonly connected: boolean;
  /** Since it last said anything, ms: a minute at most where all is well. Absent: it has not. */
  readonly silentMs?: number;
}

/** Entries of the connection tracking table, and how many it has room for. */
export interface ConntrackStatus {
  readonly entries: number;
  readonly max: number;
}

/** How far services' packets were tried against other programs' rules. */
export interface FirewallStatus {
  /** Services whose packets were tried, and how many there are. */
  readonly checked: number;
  readonly services: number;
  /** Of the checked ones, those for which a rule may drop packets: it depends on the client, or on what cannot be known; with one such rule. */
  readonly unjudged: number;
  readonly unjudgedRule?: string;
  /** What was not read: "ip filter (5000 rules)". */
  readonly unread: readonly string[];
}

/** What an operator has to know, worst first. */
export interface StatusProblem {
  readonly what: string;
  readonly remedy: string;
}

/** Another process's change of a table that was undone. */
export interface LastRepair {
  /** Unix ms. */
  readonly at: number;
  readonly family: IpFamily;
  /** "nft (pid 4711)"; empty: the kernel did not tell. */
  readonly by: readonly string[];
  /** In words. */
  readonly changes: readonly string[];
  /** From the first that was noticed to the kernel's answer, ms. */
  readonly ms: number;
}

export interface StatusReport {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "Status";
  /** Of the program, and of the kernel. */
  readonly version: string;
  readonly kernel: string;
  readonly nodeName: string;
  readonly uptimeMs: number;
  /** What /livez answers: no change has waited too long. */
  readonly healthy: boolean;
  /** Absent if no health port is served. */
  readonly healthz?: HealthzStatus;
  readonly families: readonly FamilyStatus[];
  /** Services whose change is not in the desired table yet. */
  readonly pendingServices: number;
  /** Absent: objects come from manifests. */
  readonly api?: ApiStatus;
  /** Absent: the kernel has no connection tracker loaded. */
  readonly conntrack?: ConntrackStatus;
  /** Absent: no other program has rules in the way of services' packets. */
  readonly firewalls?: FirewallStatus;
  /** What this kernel lacks, and what that means; none where it has everything. */
  readonly missingFeatures: readonly string[];
  /** Objects and fields that cannot be served. */
  readonly ignored: number;
  readonly lastRepair?: LastRepair;
  /** What goes on and needs nothing done, in words; absent: nothing. */
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

/** What a bug report needs of the daemon. It may hold secrets: `diagnose` removes what looks like one. */
export interface Diagnosis {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "Diagnosis";
  /** KubeProxyConfiguration in force. */
  readonly configuration: unknown;
  /** A line "name=value" for each flag; "" where there are none. */
  readonly flags: string;
  /** As Prometheus reads them. */
  readonly metrics: string;
  /** The last lines of the log, oldest first. */
  readonly log: string;
}

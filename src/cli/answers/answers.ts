/** Answers about this node. They come from the daemon, or from the kernel if no daemon runs. */
import type { IpFamily } from "../../base/ip.js";
import type { ServiceAddress } from "../../model/service-address.js";
import type { ConntrackFill } from "../../node/packet-settings.js";
import type {
  API_VERSION,
  EventList,
  ServiceList,
  ServicePortStatus,
  StatusProblem,
  StatusReport,
} from "../../observe/status-report.js";
import type { Addressed } from "../../tools/explain/machine/packet-spec.js";

/** Each method rejects with UserError if the source has no answer. The message says why, and what to do. */
export interface Answers {
  status(): Promise<StatusReport | KernelStatus>;
  events(): Promise<EventList>;
  /** All service ports. */
  services(): Promise<ServiceList | KernelServiceList>;
  /** All service ports, a few at a time, so that they need not be in memory together. */
  eachService(onItems: (items: readonly ServicePortStatus[]) => void): Promise<void>;
  /** All service ports with their endpoints. */
  endpoints(): Promise<ServiceList>;
  /** The ports of one service with their endpoints. Resolves to undefined if it is not served. */
  service(namespace: string, name: string): Promise<ServiceList | undefined>;
  /** The service that has the address and port, or else that node port. Resolves to undefined if there is none. */
  ownerOf(to: Addressed): Promise<ServiceList | undefined>;
}

/** A VIP and port, or a node port, from the kernel's maps. */
export interface KernelService extends ServiceAddress {
  /** The list of endpoints for new connections, or their fate if there is none. */
  readonly list:
    | "cluster"
    | "cluster, masqueraded"
    | "local"
    | "by source"
    | "by client"
    | "rejected"
    | "dropped"
    | "another layout";
  /** Undefined if the maps do not contain it (affinity, slots, tables of another layout). */
  readonly endpoints?: number;
}

export interface KernelServiceList {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "KernelServiceList";
  readonly items: readonly KernelService[];
}

/** The status of a node whose daemon does not answer. */
export interface KernelStatus {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "KernelStatus";
  readonly families: readonly {
    readonly family: IpFamily;
    readonly inForce: boolean;
    /** Number of VIPs and node ports, each with its port and protocol. */
    readonly entries: number;
  }[];
  readonly conntrack?: ConntrackFill;
  readonly problems: readonly StatusProblem[];
}

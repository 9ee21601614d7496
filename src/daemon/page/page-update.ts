/** Data for the status page. /status/stream sends messages while the page is visible. */
import type { ServicePortStatus, StatusEvent, StatusReport } from "../../observe/status-report.js";
import type { WriteBucket } from "./write-history.js";

/**
 * A new viewer gets an update, then all services in several messages, then an update every two seconds. A viewer that returns soon gets the updates
 * that it missed.
 */
export type PageMessage = PageUpdate | PageServices;

/** The last message to a viewer whose place another one has taken. */
export interface PageReplaced {
  readonly replaced: true;
}

/** Some of the services, in the order of the list. */
export interface PageServices {
  readonly items: readonly ServicePortStatus[];
  /** The first message of the list: forget all earlier services. */
  readonly first?: true;
  /** The last message of the list. */
  readonly last?: true;
}

export interface PageUpdate {
  /** Identifies the update. `/status/stream?after=ID` continues after it. */
  readonly id: string;
  /** The node's Unix time, ms. */
  readonly now: number;
  readonly status: StatusReport;
  /** All kept events. Absent if unchanged. */
  readonly events?: readonly StatusEvent[];
  /** In the first update, the buckets of the last ten minutes. Later, the changed buckets. */
  readonly writes: readonly WriteBucket[];
  /** In the first update, the samples of the last ten minutes. Later, at most one. Undefined if connections are not counted. */
  readonly traffic?: readonly TrafficSample[];
  /** Services that changed, with all of their ports; none if the service is gone. */
  readonly changed: readonly ServiceChange[];
  /** Ports with connections or refusals since the last sample. All others have none. Absent without a new sample. */
  readonly counts?: readonly PortCounts[];
}

export interface ServiceChange {
  /** "namespace/name". */
  readonly service: string;
  readonly ports: readonly ServicePortStatus[];
}

/** Per second, of all services together. */
export interface TrafficSample {
  /** Unix time, ms. */
  readonly at: number;
  readonly connections: number;
  readonly refused: number;
  readonly dropped: number;
}

export interface PortCounts extends Pick<ServicePortStatus, "connections" | "connectionsPerSecond" | "refusals"> {
  /** As `portKey` returns it. */
  readonly key: string;
  /** Per second. */
  readonly refused: number;
  readonly dropped: number;
}

/** Identifies a service port of one family. */
export function portKey({ family, protocol, port, namespace, name }: ServicePortStatus): string {
  return `${family} ${protocol} ${port} ${namespace}/${name}`;
}

/** Packets that were answered with a refusal, and that were dropped. */
export function refusedAndDropped({ refusals = {}, limits }: ServicePortStatus): {
  readonly refused: number;
  readonly dropped: number;
} {
  const { endpoint = 0, limits: limited = 0 } = refusals;
  const drops = limits?.overLimit === "drop";
  return {
    refused: endpoint + (refusals["no-endpoint"] ?? 0) + (drops ? 0 : limited),
    dropped: (refusals["no-local-endpoint"] ?? 0) + (refusals["source-ranges"] ?? 0) + (drops ? limited : 0),
  };
}

/** The answer of /status/v1/explain. */
export interface PageExplanation {
  /** As the command prints it. */
  readonly text: string;
}

/** The answer of /status/v1/find. */
export interface PageFound {
  /** "namespace/name" of services with such an endpoint. */
  readonly services: readonly string[];
  /** Whether there may be more. */
  readonly more: boolean;
}

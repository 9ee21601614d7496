import type { NoLocalEndpoints } from "../model/no-local-endpoints.js";
import type { Transfer } from "../model/service-port-view.js";
import type { AddressKey, ServiceAddress } from "../model/service-address.js";
import type { IpFamily } from "../base/ip.js";

/** One write of one family that the kernel accepted or rejected. */
export interface SyncReport {
  readonly family: IpFamily;
  readonly ok: boolean;
  /** The first refused object of a failed write, with the kernel's reason. */
  readonly error?: string;
  /** Whether everything was compared with the kernel, as in the first write and after a full read. */
  readonly full: boolean;
  /** Time from the start of the write to the kernel's answer, ms. */
  readonly ms: number;
  /** Whether no change from before the start of the write is still waiting in this family. */
  readonly settled: boolean;
  /** Unless `settled`: the age of the oldest change that is not completely active yet, ms. */
  readonly oldestMs?: number;
  /**
   * `endpoints.kubernetes.io/last-change-trigger-time` of the changes that became active with this write, Unix time,
   * ms. Times before the program's start are skipped. Empty if it failed.
   */
  readonly triggers: readonly number[];
  /**
   * "namespace/name" of the services whose changes became active with this write, including deleted ones. Empty if it
   * failed.
   */
  readonly services: readonly string[];
  /** The transactions sent to the kernel. Absent if it failed. */
  readonly work?: SyncWork;
  /** Whether the table has drifted and its repair is pending. */
  readonly repairPending?: boolean;
}

/** The cost of one write in the kernel. */
export interface SyncWork {
  /** 0 if the kernel already had everything that is desired. */
  readonly transactions: number;
  readonly operations: number;
  readonly bytes: number;
  /** Time inside sendmsg, ms. */
  readonly kernelMs: number;
}

/**
 * Why a table was repaired:
 *
 * - table-deleted: it was deleted.
 * - changed: events showed another change.
 * - events-lost: events were lost.
 * - conflict: the kernel rejected a write because of the change.
 * - check: a periodic check found the change.
 */
export const REPAIR_CAUSES = ["table-deleted", "changed", "events-lost", "conflict", "check"] as const;
export type RepairCause = (typeof REPAIR_CAUSES)[number];

/** Another process changed a table of ours, and the change was undone. */
export interface RepairReport {
  readonly family: IpFamily;
  readonly cause: RepairCause;
  /** Differences from what we last wrote, as found by a read. */
  readonly found: readonly string[];
  /** Changes that events reported. Empty if they reported none. */
  readonly changes: readonly string[];
  /** Processes that made the changes, if the kernel reported them: "nft (pid 4711)". */
  readonly by: readonly string[];
  /** Operations of the transaction that undid the changes, including its other writes. */
  readonly operations: number;
  /** Time from the first noticed change to the kernel's answer, ms. */
  readonly ms: number;
}

/** The kernel repeatedly refused to change the table, so it was deleted and written from scratch. */
export interface RebuildReport {
  readonly family: IpFamily;
  /** False if the kernel rejected that as well. The table is then unchanged. */
  readonly ok: boolean;
  /** The operations that were rejected before, each with its error: "delete chain x: ENOENT". At most five. */
  readonly refused: readonly string[];
}

/** Another process keeps undoing our writes. */
export interface ContentionReport {
  /** "nft-proxier (pid 4711)". */
  readonly by: readonly string[];
  /** The recommended action. */
  readonly hint: string;
}

/** A service that the kernel rejects. Its last accepted state stays active, or none if there is none. */
export interface QuarantineReport {
  readonly family: IpFamily;
  /** "namespace/name". */
  readonly service: string;
  /** The kernel's reason as text. */
  readonly reason: string;
}

/**
 * Receives the proxier's events. Metrics and health are observers. Calls are synchronous, must be cheap and must not
 * throw. Times are Unix ms (`Date.now()`), because they are shown to people.
 */
export interface ProxierObserver {
  /**
   * A Service or an EndpointSlice of some service was received or deleted, even if that changes nothing.
   * @param ports number of ports of a received Service.
   */
  received?(kind: "Service" | "EndpointSlice", ports?: number): void;
  /** A change of a Service or an EndpointSlice was received and is pending. */
  changed?(kind: "Service" | "EndpointSlice"): void;
  /** A write was requested. */
  queued?(at: number): void;
  /** The pending changes are being applied to the desired state, so none is pending any more. */
  taken?(): void;
  /** Called once, before the first write, with claims that the existing tables serve and that no service has. */
  found?(addresses: readonly ServiceAddress[]): void;
  synced?(report: SyncReport): void;
  /**
   * Where node ports are served from now on. "all" means every local address except loopback.
   * @param localhost CIDRs of loopback addresses on which they are served as well.
   */
  nodePortAddresses?(family: IpFamily, addresses: "all" | readonly string[], localhost: readonly string[]): void;
  /** Another process changed the table. The change remains at least until a `synced` without `repairPending`. */
  drifted?(family: IpFamily): void;
  repaired?(report: RepairReport): void;
  rebuilt?(report: RebuildReport): void;
  /**
   * The kernel dropped events of the tables, or nothing listened for a while. Everything is now compared with the
   * kernel.
   */
  eventsLost?(reason: string): void;
  /** Called once until `uncontended`, for all families together. */
  contended?(report: ContentionReport): void;
  uncontended?(): void;
  /** Called once until `released`. */
  quarantined?(refusal: QuarantineReport): void;
  /** The service is active as desired, or no longer desired. */
  released?(back: Pick<QuarantineReport, "family" | "service">): void;
  /** A service took over addresses from another service that claims them. */
  transferred?(transfer: Transfer): void;
  /** A service has lost an address. Another service may have it now. */
  lost?(address: AddressKey): void;
  noLocalEndpoints?(family: IpFamily, counts: NoLocalEndpoints): void;
}

import type { IpFamily } from "../base/ip.js";
import type { Protocol } from "../base/protocols.js";

/** One write of one family that the kernel took, or refused. */
export interface SyncReport {
  readonly family: IpFamily;
  readonly ok: boolean;
  /** Everything was compared with what the kernel holds: the first write, and those that follow a full read. */
  readonly full: boolean;
  /** From its beginning to the kernel's answer, ms. */
  readonly ms: number;
  /** No change that came in before the write began is waiting in this family any more. */
  readonly settled: boolean;
  /** Unless `settled`: how long the oldest change has waited of which a part is not in force yet, ms. */
  readonly oldestMs?: number;
  /**
   * `endpoints.kubernetes.io/last-change-trigger-time` of the changes that this write brought into force, Unix ms; those
   * from before the program's start are skipped. Empty when it failed.
   */
  readonly triggers: readonly number[];
  /** "namespace/name" of the services whose changes this write brought into force, deleted ones too. Empty when it failed. */
  readonly services: readonly string[];
  /** What the kernel was told. Absent when it failed. */
  readonly work?: SyncWork;
  /** The table has drifted, and its repair waits. */
  readonly repairPending?: boolean;
}

/** One write, as the kernel saw it. */
export interface SyncWork {
  /** 0: it held all that is desired. */
  readonly transactions: number;
  readonly operations: number;
  readonly bytes: number;
  /** Inside sendmsg. */
  readonly kernelMs: number;
}

/** Services whose policy is Local and that have endpoints, but none on this node. */
export interface NoLocalEndpoints {
  readonly internal: number;
  readonly external: number;
}

/**
 * Why a table was repaired: all of it was gone; events told of something else; events had been lost; the kernel refused
 * a write because of it; a periodic check found it.
 */
export const REPAIR_CAUSES = ["table-deleted", "changed", "events-lost", "conflict", "check"] as const;
export type RepairCause = (typeof REPAIR_CAUSES)[number];

/** Another process changed a table of ours, and that has been repaired. */
export interface RepairReport {
  readonly family: IpFamily;
  readonly cause: RepairCause;
  /** What a read found otherwise than it was left, in words. */
  readonly found: readonly string[];
  /** What events said was done, in words; empty when they said nothing. */
  readonly changes: readonly string[];
  /** Processes that did it, as far as the kernel told: "nft (pid 4711)". */
  readonly by: readonly string[];
  /** Of the transaction that undid it, with what else it wrote. */
  readonly operations: number;
  /** From the first that was noticed to the kernel's answer, ms. */
  readonly ms: number;
}

/** The kernel refused to change the table again and again, so that it was deleted and written from scratch. */
export interface RebuildReport {
  readonly family: IpFamily;
  /** False: the kernel refused that, too, and the table is as it was. */
  readonly ok: boolean;
  /** The operations that were refused before, each with its error: "delete chain x: ENOENT". At most five. */
  readonly refused: readonly string[];
}

/** Another process keeps undoing what we write. */
export interface ContentionReport {
  /** "nft-proxier (pid 4711)". */
  readonly by: readonly string[];
  /** What to do. */
  readonly hint: string;
}

/** A service that the kernel refuses: what it took of it last stays in force, or nothing of it is. */
export interface QuarantineReport {
  readonly family: IpFamily;
  /** "namespace/name". */
  readonly service: string;
  /** In words. */
  readonly reason: string;
}

/** A VIP and port, or (address "") a node port. */
export interface ServedClaim {
  readonly family: IpFamily;
  /** Canonical. */
  readonly address: string;
  readonly protocol: Protocol;
  readonly port: number;
}

/**
 * Told what the proxier does; metrics and health are kept by observers. Calls are synchronous, cheap and must not throw.
 * Times are Unix ms (`Date.now()`), as what is shown to people is.
 */
export interface ProxierObserver {
  /** A Service or an EndpointSlice of some service came in or went, whether that changes anything or not. */
  received?(kind: "Service" | "EndpointSlice"): void;
  /** A change of a Service or an EndpointSlice came in and waits. */
  changed?(kind: "Service" | "EndpointSlice"): void;
  /** A write was asked for. */
  queued?(at: number): void;
  /** The changes that were waiting are being taken over into the desired state: none is pending any more. */
  taken?(): void;
  /** Told once, before the first write: what the tables that were found serve, and no service has. */
  found?(claims: readonly ServedClaim[]): void;
  synced?(report: SyncReport): void;
  /**
   * Where node ports answer from now on; "all": on every local address but loopback.
   * @param localhost CIDRs of loopback addresses on which they answer as well.
   */
  nodePortAddresses?(family: IpFamily, addresses: "all" | readonly string[], localhost: readonly string[]): void;
  /** Another process changed the table; that is not undone before a `synced` without `repairPending`. */
  drifted?(family: IpFamily): void;
  repaired?(report: RepairReport): void;
  rebuilt?(report: RebuildReport): void;
  /** The kernel dropped events of the tables, or nothing listened for a while: everything is compared with the kernel now. */
  eventsLost?(reason: string): void;
  /** Told once until `uncontended`; of all families. */
  contended?(report: ContentionReport): void;
  uncontended?(): void;
  /** Told once until `released`. */
  quarantined?(refusal: QuarantineReport): void;
  /** The service is in force as it is desired, or desired no more. */
  released?(back: Pick<QuarantineReport, "family" | "service">): void;
  noLocalEndpoints?(family: IpFamily, counts: NoLocalEndpoints): void;
}

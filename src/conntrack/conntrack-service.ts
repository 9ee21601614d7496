/**
 * Connection tracking as the proxier sees it: one observer that keeps the kernel's table in line with the services
 * after their rules are committed. No sync ever waits for it, and no error here ends the program.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { IpFamily } from "../base/ip.js";
import type { LocalAddress } from "../node/node-facts.js";
import type { Logger } from "../base/logger.js";
import type { ProxierObserver, RebuildReport, RepairReport, SyncReport } from "../proxier/observer.js";
import { Drains } from "./reconcile/drains.js";
import type { ServiceAddress } from "../model/service-address.js";
import { FormerTargets } from "./reconcile/former-targets.js";
import { GarbageCollector, type GcReason, type GcReport } from "./gc/garbage-collector.js";
import { GcRunner } from "./gc/gc-runner.js";
import { nodePortAddressesOf, type TargetSource } from "./reconcile/service-knowledge.js";
import { type Distress, PressureMonitor, type PressureReport } from "./gc/pressure-monitor.js";
import { type ReconcileReport, Reconciler, type ReconcilerOptions } from "./reconcile/reconciler.js";
import { resetCheck, type ResetSettings } from "./reconcile/reset-check.js";
import type { ConntrackEntry, ConntrackTable } from "../nft/conntrack/conntrack-table.js";

/** Receives the events of connection tracking. Calls are synchronous, must be cheap and must not throw. */
export interface ConntrackObserver {
  /** A pass of the reconciler over one family is complete. */
  reconciled?(report: ReconcileReport): void;
  /** A background garbage collection is complete. */
  collected?(report: GcReport): void;
  /** The kernel confirmed a background deletion: the entry as it was, and why. `plainEntry` makes a copy. */
  deleted?(entry: ConntrackEntry, reason: GcReason, by: "reconciler" | "gc"): void;
  /**
   * A background garbage collection finds this entry in order. If any observer has this method, every run passes every
   * entry of the table to JavaScript.
   */
  alive?(entry: ConntrackEntry): void;
  /** A sample of how full the table is. */
  pressure?(report: PressureReport): void;
  /** Insertions fail, packets are dropped, or the table is nearly full. Garbage is collected early. */
  distress?(distress: Distress): void;
}

export interface ConntrackServiceOptions {
  readonly table: ConntrackTable;
  /** The proxier's own model, created with `trackRemovals`. */
  readonly model: TargetSource;
  readonly families: readonly IpFamily[];
  /** This node's addresses, where node ports are served if they are served everywhere. */
  readonly localAddresses: () => Promise<readonly LocalAddress[]>;
  readonly log: Logger;
  /** Claims and endpoints that services gave up. Default: none. */
  readonly former?: FormerTargets;
  /** The kernel's settings, checked when a service asks for resets. Default: assumed to be right. */
  readonly settings?: ResetSettings;
  readonly observers?: readonly ConntrackObserver[];
  /**
   * Time between two background garbage collections, ms. "adaptive" (default): depends on what they find. "off": none.
   */
  readonly gcInterval?: GcInterval;
  /** Overrides for the reconciler's waits, and for the time between two samples of the table's pressure, ms. */
  readonly timing?: Pick<ReconcilerOptions, "settleMs" | "firstRetryMs"> & { readonly pressureMs?: number };
}

export type GcInterval = number | "adaptive" | "off";

export class ConntrackService implements ProxierObserver {
  readonly #former: FormerTargets;
  readonly #drains: Drains;
  readonly #reconciler: Reconciler;
  readonly #collector: GarbageCollector;
  /** Undefined if garbage is not collected in the background. */
  readonly #runner: GcRunner | undefined;
  readonly #pressure: PressureMonitor;
  readonly #nodePorts = new Map<IpFamily, { told: "all" | readonly string[]; localhost: readonly string[] }>();
  readonly #begun = new Set<IpFamily>();

  constructor(private readonly options: ConntrackServiceOptions) {
    const { table, families, log, gcInterval = "adaptive", observers = [], former = new FormerTargets() } = options;
    this.#former = former;
    this.#drains = new Drains({
      model: options.model,
      onOver: (family, service) => this.#reconciler.request(family, [service], []),
    });
    const model = this.#drains.source();
    const nodePortAddresses = (family: IpFamily) => this.#nodePortAddresses(family);
    const shared = { table, model, former: this.#former, nodePortAddresses };
    this.#reconciler = new Reconciler({
      ...shared,
      log,
      ...options.timing,
      onResetsAsked: options.settings && resetCheck(options.settings, log),
      onPass: (report) => {
        for (const observer of observers) observer.reconciled?.(report);
      },
      onDeleted: (entry, reason) => {
        for (const observer of observers) observer.deleted?.(entry, reason, "reconciler");
      },
    });
    this.#collector = new GarbageCollector({ ...shared, families });
    if (gcInterval !== "off") {
      this.#runner = new GcRunner({
        collector: this.#collector,
        log,
        interval: gcInterval,
        onEntry: (entry, reason, outcome) => {
          if (outcome === "deleted") for (const observer of observers) observer.deleted?.(entry, reason, "gc");
        },
        onAlive: observers.some((observer) => observer.alive !== undefined)
          ? (entry) => {
              for (const observer of observers) observer.alive?.(entry);
            }
          : undefined,
        onRun: (report) => {
          for (const observer of observers) observer.collected?.(report);
        },
      });
    }
    const { pressureMs } = options.timing ?? {};
    this.#pressure = new PressureMonitor({
      table,
      log,
      intervalMs: pressureMs,
      onSample: (report) => {
        for (const observer of observers) observer.pressure?.(report);
      },
      onDistress: (distress) => {
        for (const observer of observers) observer.distress?.(distress);
        this.#runner?.trigger(distress);
      },
    });
  }

  /** Starts garbage collection and monitoring of the table's pressure. The reconciler starts with the first write. */
  start(): void {
    this.#runner?.start();
    this.#pressure.start();
  }

  /**
   * VIPs and node ports (address "") of the table that was taken over. If no service has one, it counts as a former one.
   * Called when the model has its first full list, before the first write is reported.
   */
  found(addresses: Iterable<ServiceAddress>): void {
    for (const address of addresses) {
      if (this.options.model.ownerOf(address) !== undefined) continue;
      this.#former.add(address, { cause: "found", endpoints: undefined });
    }
  }

  nodePortAddresses(family: IpFamily, told: "all" | readonly string[], localhost: readonly string[] = []): void {
    this.#nodePorts.set(family, { told, localhost });
  }

  /**
   * ProxierObserver: the kernel accepted or rejected the rules of a family, and with them the changes of these services ("namespace/name"). Returns
   * at once.
   */
  synced({ family, ok, services }: Pick<SyncReport, "family" | "ok" | "services">): void {
    if (!ok) return;
    this.#takeRemovals();
    if (this.#begun.has(family)) {
      // Includes addresses that a service gave up before but that were not written. They stay recorded until the write
      // that removes them.
      this.#reconciler.request(family, services, this.#former.claimsOf(family, services));
      return;
    }
    this.#begun.add(family);
    this.#reconciler.requestAll(family);
  }

  /**
   * ProxierObserver: rules that packets may have missed are back. Such a packet creates an entry without translation, and
   * each further packet of its client renews the entry.
   */
  repaired({ family }: Pick<RepairReport, "family">): void {
    if (this.#begun.has(family)) this.#reconciler.requestAll(family);
  }

  rebuilt({ family }: Pick<RebuildReport, "family">): void {
    this.repaired({ family });
  }

  /** Resolves when no pass of the reconciler is running or waiting, except for repetitions and retries. */
  idle(): Promise<void> {
    return this.#reconciler.idle();
  }

  /**
   * Resolves with true when the reconciler has nothing left to do, including repetitions and retries. Resolves with
   * false after `timeoutMs`.
   */
  async settled(timeoutMs: number): Promise<boolean> {
    const settled = this.#reconciler.settled().then(() => true);
    return Promise.race([settled, sleep(timeoutMs, false, { ref: false })]);
  }

  /** Stops. Resolves when nothing is running. The table stays open, because its owner closes it. */
  async stop(): Promise<void> {
    this.#drains.stop();
    await Promise.all([this.#reconciler.stop(), this.#runner?.stop(), this.#pressure.stop()]);
  }

  #takeRemovals(): void {
    const { model } = this.options;
    for (const { address, endpoints, service } of model.takeRemovals()) {
      const [target] = model.targets(address.family, service);
      const cause = target === undefined ? "deleted" : "changed";
      this.#former.add(address, { cause, endpoints }, service);
    }
  }

  async #nodePortAddresses(family: IpFamily): Promise<Iterable<string>> {
    const { told, localhost } = this.#nodePorts.get(family) ?? { told: [], localhost: [] };
    return [
      ...nodePortAddressesOf(family, told, told === "all" ? await this.options.localAddresses() : []),
      ...localhost,
    ];
  }
}

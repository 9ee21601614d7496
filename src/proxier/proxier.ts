/**
 * Keeps the model up to date with the objects, and writes each family's table to the kernel at the right times. Writes
 * nothing before the first full list.
 */
import type { NodeObject } from "../objects/records.js";
import { runInSlices, TimeSlice, yieldToEventLoop } from "../base/time-slice.js";
import type { ProxyConfig } from "../config/proxy-config.js";
import type { Kernel } from "../nft/kernel/kernel.js";
import { ServiceModel } from "../model/service-model.js";
import type { IpFamily } from "../base/ip.js";
import { type Logger, serviceFields } from "../base/logger.js";
import type { KubeKind, KubeObject, ObjectSink } from "../objects/object-sink.js";
import { type Clock, joinResults } from "../nft/engine-exports.js";
import { Contention } from "./contention.js";
import { FamilyProxier, type FamilyOutcome } from "./family-proxier.js";
import { LocalAddresses, type WatchedAddresses } from "../node/local-addresses.js";
import { problemLogger, transferLogger } from "./model-log.js";
import { LargeUpdates, type Updated } from "./large-updates.js";
import { NodeRules } from "./node-rules.js";
import type { ProxierObserver } from "./observer.js";
import { BoundedFrequencyRunner, type WriteOutcome } from "../base/bounded-frequency-runner.js";
import type { ProxierContext } from "./proxier-context.js";
import type { ServiceCounters } from "../ruleset/service-counters.js";
import { SyncReports } from "./sync-reports.js";
import { TriggerTimes } from "./trigger-times.js";
import { Watcher } from "./watcher.js";

export interface ProxierOptions {
  readonly config: ProxyConfig;
  readonly nodeName: string;
  readonly families: readonly IpFamily[];
  readonly kernel: Kernel;
  readonly log: Logger;
  readonly clock: Clock;
  readonly interfaces: WatchedAddresses;
  /** Called in this order. Default: none. */
  readonly observers?: readonly ProxierObserver[];
  /**
   * Whether to create the tables so that no other process can change them while this runs (TableOptions.own). If the
   * kernel does not support that, logs a warning and creates normal tables. Default: false.
   */
  readonly ownTable?: boolean;
  /** Connections to count, if the kernel can. Tables that were created differently are created again. Default "off". */
  readonly serviceCounters?: ServiceCounters;
  /** See TableOptions.pieceElements. */
  readonly pieceElements?: number;
  /** See LargeUpdatesOptions.pieceElements. */
  readonly serviceElements?: number;
  /** Whether to watch the tables for changes by other processes, and repair them. Default: false. */
  readonly watch?: boolean;
  /** CPU time that this process has used, ms. It limits the share for repairs. Default: as the system reports it. */
  readonly cpuMs?: () => number;
  /**
   * Whether the model records addresses that services give up, until `model.takeRemovals`, for connection tracking. Default:
   * false.
   */
  readonly trackRemovals?: boolean;
}

/** Maximum time for which changes are batched while they keep coming, ms. */
const BATCH_MS = 20;

/** The result of one write of all families. */
interface SyncOutcome {
  readonly ok: boolean;
  readonly families: readonly { readonly family: IpFamily; readonly outcome: FamilyOutcome }[];
}

/** Joins the outcomes of two consecutive writes. */
function joinOutcomes(a: SyncOutcome, b: SyncOutcome): SyncOutcome {
  const families = b.families.map(({ family, outcome }) => {
    const before = a.families.find((one) => one.family === family)?.outcome;
    if (!outcome.ok || before?.ok !== true) return { family, outcome };
    const result = joinResults(before.result, outcome.result);
    return { family, outcome: { ...outcome, result } };
  });
  return { ok: b.ok, families };
}

export class Proxier implements ObjectSink {
  readonly #log: Logger;
  /** The meaning of the objects. Observers may query it. */
  readonly model: ServiceModel;
  readonly families: readonly FamilyProxier[];
  readonly #runner: BoundedFrequencyRunner;
  readonly #observers: ProxierObserver[];
  readonly localAddresses: LocalAddresses;
  readonly nodeRules: NodeRules;
  readonly #large: LargeUpdates;
  /** Whether the last write skipped large services in favour of other changes. */
  #largeWaited = false;
  /** Whether no family's last write succeeded. Its changes must be written before new pieces. */
  #failed = false;
  #synced = false;
  /** Pending: no list has been received yet, and those of an earlier run stay active. */
  #serviceCIDRs: "pending" | "changed" | "active" = "changed";
  #loaded = false;
  #watching = false;
  #ahead: Promise<void> | undefined;
  /** When the oldest unwritten change came, ms of the clock. */
  #pendingSince: number | undefined;
  readonly #triggers = new TriggerTimes(Date.now());
  readonly #reports: SyncReports;
  readonly #watcher: Watcher | undefined;
  readonly #contention: Contention;

  constructor(private readonly options: ProxierOptions) {
    this.#log = options.log;
    this.#observers = [...(options.observers ?? [])];
    const logTransfer = transferLogger(options.log);
    this.model = new ServiceModel({
      families: options.families,
      node: { nodeName: options.nodeName },
      onProblem: problemLogger(options.log),
      onTransfer: (transfer) => {
        logTransfer(transfer);
        for (const observer of this.#observers) observer.transferred?.(transfer);
      },
      onLost: (address) => {
        for (const observer of this.#observers) observer.lost?.(address);
      },
      trackRemovals: options.trackRemovals ?? false,
    });
    const { minSyncPeriod, syncPeriod } = options.config.nftables;
    const { log, clock } = options;
    const context: ProxierContext = { log, clock, observers: this.#observers };
    this.#reports = new SyncReports(context);
    this.#contention = new Contention(context);
    this.families = options.families.map(
      (family) =>
        new FamilyProxier(family, {
          ...options,
          ...context,
          ownTable: options.ownTable === true,
          contention: this.#contention,
          syncPeriodMs: syncPeriod,
          request: () => this.#requestIn(0),
        }),
    );
    this.#large = new LargeUpdates({
      pieceElements: options.serviceElements,
      model: this.model,
      families: this.families,
      onViews: (family, service, views) => this.#reports.noLocal[family].update(service, views),
      onError: (service, error) => this.#updateFailed(service, error),
    });
    this.localAddresses = new LocalAddresses(options.interfaces, options.log, () => this.#addressesChanged());
    this.nodeRules = new NodeRules({
      ...options,
      ...context,
      families: this.families,
      localAddresses: this.localAddresses,
      onZone: (zone) => this.model.setZone(zone),
      ownTable: options.ownTable === true,
      serviceCounters: options.serviceCounters ?? "off",
    });
    this.#runner = new BoundedFrequencyRunner(() => this.#writeStep(), {
      gapMs: Math.max(minSyncPeriod, BATCH_MS),
      maxRetryMs: syncPeriod,
      now: () => options.clock.now(),
    });
    if (options.watch === true) this.#watcher = this.#newWatcher();
  }

  /** Adds an observer, which receives all events from now on. */
  observe(observer: ProxierObserver): void {
    this.#observers.push(observer);
  }

  /**
   * Starts to read the kernel's tables and to probe the kernel. Call it before the first objects come: it takes as long
   * as they do, and does not depend on them.
   */
  readAhead(): void {
    if (this.#ahead !== undefined) return;
    this.nodeRules.probeAhead();
    this.#ahead = this.#readAhead();
  }

  upsert(object: KubeObject): void {
    this.#pendingSince ??= this.options.clock.now();
    switch (object.kind) {
      case "Service":
        if (this.model.upsert(object)) this.#changed("Service");
        return this.#received("Service", object.record?.ports.length);
      case "EndpointSlice":
        if (this.model.upsert(object)) {
          this.#triggers.note(object);
          this.#changed("EndpointSlice");
        }
        if (object.counted) this.#received("EndpointSlice");
        return;
      case "ServiceCIDR":
        this.model.upsert(object);
        return;
      case "Node":
        return this.#setNode(object.name, object);
    }
  }

  remove(kind: KubeKind, name: string): void {
    this.#pendingSince ??= this.options.clock.now();
    switch (kind) {
      case "Service":
        this.#received("Service");
        if (this.model.remove(kind, name)) this.#changed("Service");
        return;
      case "EndpointSlice":
        this.#received("EndpointSlice");
        this.#triggers.remove(name);
        if (this.model.remove(kind, name)) this.#changed("EndpointSlice");
        return;
      case "ServiceCIDR":
        this.model.remove(kind, name);
        return;
      case "Node":
        return this.#setNode(name, undefined);
    }
  }

  synced(pending: readonly KubeKind[] = []): void {
    this.#synced = true;
    this.#serviceCIDRs = pending.includes("ServiceCIDR") ? "pending" : "changed";
  }

  listed(kind: KubeKind): void {
    if (kind !== "ServiceCIDR") return;
    this.#pendingSince ??= this.options.clock.now();
    this.#serviceCIDRs = "changed";
  }

  flush(): void {
    if (!this.#synced) return;
    for (const observer of this.#observers) observer.queued?.(Date.now());
    this.#runner.requestIn(0);
  }

  /** Applies the objects to the desired tables, without writing to the kernel. */
  async prepare(): Promise<void> {
    await this.#prepare(this.options.clock.now());
    while (this.#large.size > 0) await this.#large.advance();
  }

  /**
   * Does the same, but only one piece of each large service. Returns the time of the oldest change that it covers.
   * @param since time of the oldest change since the last call.
   */
  async #prepare(since: number): Promise<number> {
    await this.nodeRules.refresh();
    const isFirst = !this.#loaded;
    if (isFirst) {
      await this.#ahead;
      await this.#watch();
      await this.nodeRules.checkOwnership();
      // The sets have been declared by now, so services find the kernel's elements.
      await Promise.all(this.families.map((family) => family.load()));
    }
    const dirty = this.model.takeDirtyInPieces();
    for (const observer of this.#observers) observer.taken?.();
    this.#updateServiceCIDRs(dirty.serviceCIDRs);
    // The first list is long, and there may be many conflicts. Signals and health checks must not wait for them.
    await runInSlices(dirty.naming);
    // The first write must be complete before any of it is visible.
    const services = isFirst ? dirty.services : await this.#large.accept(this.#withDue(dirty.services), since);
    for (const { family } of this.families) this.#reports.underWay(family, this.#triggers.take(family), services);
    const timeSlice = new TimeSlice();
    let yielded = false;
    for (const service of services) {
      await this.#large.update(service);
      if (!timeSlice.spent) continue;
      await timeSlice.yield();
      yielded = true;
    }
    const updated = await this.#advanceLarge(services.length > 0);
    // The write that follows starts with its own slice.
    if (yielded) await yieldToEventLoop();
    if (isFirst) this.#reportFound();
    this.#loaded = true;
    return Math.min(since, ...updated.map((one) => one.since));
  }

  /** Returns the services and the quarantined ones that are due, except those that are being retried. */
  #withDue(services: readonly string[]): readonly string[] {
    const due = this.families
      .flatMap(({ quarantine }) => quarantine.takeDue())
      .filter((service) => !this.#large.has(service));
    return due.length === 0 ? services : [...new Set([...services, ...due])];
  }

  /** @param others whether other services have changes to write. Every second time they are written alone. */
  async #advanceLarge(others: boolean): Promise<readonly Updated[]> {
    const waits = this.#failed || this.#hasSuspects || (others && !this.#largeWaited);
    this.#largeWaited = waits;
    if (waits) return [];
    const updated = await this.#large.advance();
    const services = updated.map(({ service }) => service);
    for (const { family } of this.families) this.#reports.underWay(family, [], services);
    return updated;
  }

  /** Writes the desired state of all families now. Never throws. */
  async sync(): Promise<SyncOutcome> {
    let outcome = await this.#step();
    while (outcome.ok && (this.#large.size > 0 || this.#hasSuspects)) {
      outcome = joinOutcomes(outcome, await this.#step());
    }
    return outcome;
  }

  /**
   * Whether changes that the kernel rejected together wait for a retry. Updates of large services continue after that.
   */
  get #hasSuspects(): boolean {
    return this.families.some(({ quarantine }) => quarantine.hasSuspects);
  }

  /** Does the same, but only one piece of large services. */
  async #step(): Promise<SyncOutcome> {
    let since = this.#pendingSince ?? this.options.clock.now();
    this.#pendingSince = undefined;
    const started = performance.now();
    try {
      since = await this.#prepare(since);
    } catch (error) {
      this.#log.error({ err: error }, "reading the kernel's tables failed");
      for (const { family } of this.families) this.#reports.report(family, started, since, { ok: false, error });
      return { ok: false, families: [] };
    }
    const families = await Promise.all(
      this.families.map(async (family) => {
        const outcome = await family.write(this.options.clock.now());
        this.#reports.report(family.family, started, since, outcome, this.#large.oldest);
        return { family: family.family, outcome };
      }),
    );
    const ok = families.every(({ outcome }) => outcome.ok);
    this.#failed = !families.some(({ outcome }) => outcome.ok);
    return { ok, families };
  }

  /**
   * Compares tables with the kernel now, as is also done every few minutes. Compares one part of a large table at a
   * time. Never throws.
   */
  async check(): Promise<void> {
    await this.#watcher?.check();
  }

  /** Stops. The kernel's tables stay unchanged. */
  async stop(): Promise<void> {
    await this.#runner.stop();
    await this.localAddresses.close();
    for (const family of this.families) family.close();
    await this.#watcher?.close();
    this.#contention.close();
    this.logRecentWrites();
  }

  /** Logs the number of writes since the last summary. */
  logRecentWrites(): void {
    this.#reports.flush();
  }

  #updateServiceCIDRs(changed: boolean): void {
    if (this.#serviceCIDRs === "pending") {
      if (!this.#loaded) for (const { ruleset } of this.families) ruleset.keepServiceCIDRs();
      return;
    }
    if (!changed && this.#serviceCIDRs === "active") return;
    for (const { family, ruleset } of this.families) ruleset.setServiceCIDRs(this.model.serviceCIDRs(family));
    this.#serviceCIDRs = "active";
  }

  /** Such a service must not keep the others from the kernel. */
  #updateFailed(service: string, error: unknown): void {
    const fields = { ...serviceFields(service), err: error };
    this.#log.error(fields, "updating a service failed; last good version kept");
  }

  #reportFound(): void {
    const found = this.families.flatMap((family) => [...family.takeFormerAddresses()]);
    const former = found.filter((address) => this.model.ownerOf(address) === undefined);
    for (const observer of this.#observers) observer.found?.(former);
  }

  async #writeStep(): Promise<WriteOutcome> {
    const { families, ...whole } = await this.#step();
    // A table owned by another program has its own intervals.
    const ok =
      families.length === 0 ? whole.ok : families.every(({ outcome }) => outcome.ok || outcome.owned !== undefined);
    const waits = families.flatMap(({ outcome }) => outcome.againMs ?? []);
    if (!this.#failed && this.#large.size > 0) waits.push(0);
    return waits.length === 0 ? { ok } : { ok, againMs: Math.min(...waits) };
  }

  async #readAhead(): Promise<void> {
    try {
      await this.#watch();
      for (const { table } of this.families) table.readAhead();
    } catch (error) {
      this.#log.debug({ err: error }, "reading the tables in advance failed; they are read with the first write");
    }
  }

  /** From here on, changes are noticed. */
  async #watch(): Promise<void> {
    if (this.#watching) return;
    await this.#watcher?.open();
    this.#watching = true;
  }

  #received(kind: "Service" | "EndpointSlice", ports?: number): void {
    for (const observer of this.#observers) observer.received?.(kind, ports);
  }

  #changed(kind: "Service" | "EndpointSlice"): void {
    for (const observer of this.#observers) observer.changed?.(kind);
  }

  #requestIn(ms: number): void {
    if (this.#synced) this.#runner.requestIn(ms);
  }

  #newWatcher(): Watcher {
    return new Watcher(
      this.options.kernel,
      this.families,
      this.#log,
      (inMs) => this.#requestIn(inMs),
      (reason) => {
        for (const observer of this.#observers) observer.eventsLost?.(reason);
      },
    );
  }

  /** Other Nodes mean nothing here, so their problems do not matter. */
  #setNode(name: string, object: NodeObject | undefined): void {
    if (name !== this.options.nodeName) return;
    if (object === undefined) this.model.remove("Node", name);
    else this.model.upsert(object);
    this.nodeRules.node = object?.record;
  }

  #addressesChanged(): void {
    this.#pendingSince ??= this.options.clock.now();
    this.nodeRules.addressesChanged();
    this.flush();
  }
}

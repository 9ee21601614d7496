/**
 * Objects in, kernel out: keeps the model up to date, and writes each family's table at the right moments. Nothing is
 * written before the first full list.
 */
import type { V1Node } from "@kubernetes/client-node";
import { runInSlices, TimeSlice, yieldToEventLoop } from "../base/time-slice.js";
import type { ProxyConfig } from "../config/proxy-config.js";
import type { Kernel } from "../netlink/kernel.js";
import { netfilterPortOpen, processOfThread } from "../node/processes.js";
import { NoLocalEndpointsCounter } from "../model/no-local-endpoints.js";
import { ServiceModel } from "../model/service-model.js";
import type { SliceObject } from "../objects/records.js";
import type { IpFamily } from "../base/ip.js";
import { type Logger, serviceFields } from "../base/logger.js";
import type { KubeKind, KubeObject, ObjectSink } from "../objects/object-sink.js";
import { type Clock, joinResults } from "../table/table-exports.js";
import { Contention, type PeerLookup } from "./contention.js";
import { FamilyProxier, type FamilyOutcome } from "./family.js";
import type { LocalAddress } from "../node/facts.js";
import { LocalAddresses } from "../node/local-addresses.js";
import { problemLogger, takeOverLogger } from "./model-log.js";
import { LargeUpdates, type Updated } from "./large-updates.js";
import { NodeRules } from "./node-rules.js";
import type { ProxierObserver } from "./observer.js";
import { Pace } from "./pace.js";
import type { ProxierContext } from "./proxier-context.js";
import type { PortCounts } from "../ruleset/connection-counts.js";
import type { ServiceCounters } from "../ruleset/service-counters.js";
import { SyncReports } from "./sync-reports.js";
import { TriggerTimes } from "./triggers.js";
import { Watcher, type WatcherOptions } from "./watcher.js";

export interface ProxierOptions {
  readonly config: ProxyConfig;
  readonly nodeName: string;
  readonly families: readonly IpFamily[];
  readonly kernel: Kernel;
  readonly log: Logger;
  readonly clock: Clock;
  /** Interface addresses of this node, as they are; by default the kernel's, as they change. */
  readonly localAddresses?: () => Promise<readonly LocalAddress[]>;
  /** Told what happens, in this order; by default no observer. */
  readonly observers?: readonly ProxierObserver[];
  /**
   * Make the tables so that no other process can change them while this runs (TableOptions.own). Where the kernel cannot, that is said and
   * the tables are like any other. Default: no.
   */
  readonly ownTable?: boolean;
  /** What is counted, where the kernel can; the tables are made anew where they are otherwise. Default "off". */
  readonly serviceCounters?: ServiceCounters;
  /** See TableOptions.pieceElements. */
  readonly pieceElements?: number;
  /** See LargeUpdatesOptions.pieceElements. */
  readonly serviceElements?: number;
  /** Watch what other processes do to the tables, and repair it. Default: no. */
  readonly watch?: boolean | WatcherOptions;
  /** CPU time that this process has used, ms: repairs may take a share of it. By default what the system says. */
  readonly cpuMs?: () => number;
  /** What the system tells of processes that change the tables; by default /proc. */
  readonly peers?: PeerLookup;
  /** The model remembers what services give up, until `model.takeReleased`: connection tracking asks for it. Default false. */
  readonly trackReleased?: boolean;
}

/** While changes keep coming, they are written together at most this far apart, ms. */
const BATCH_MS = 20;

const PEERS_IN_PROC: PeerLookup = { portOpen: netfilterPortOpen, processOf: processOfThread };

/** What one write of all families came to. */
export interface SyncOutcome {
  readonly ok: boolean;
  readonly families: readonly { readonly family: IpFamily; readonly outcome: FamilyOutcome }[];
}

/** Of two writes, one after the other. */
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
  readonly #options: ProxierOptions;
  readonly #log: Logger;
  /** What the objects mean; for observers to ask. */
  readonly model: ServiceModel;
  readonly #families: readonly FamilyProxier[];
  readonly #pace: Pace;
  readonly #observers: ProxierObserver[];
  readonly #localAddresses: LocalAddresses;
  readonly #nodeRules: NodeRules;
  readonly #large: LargeUpdates;
  /** The last write skipped large services for the changes of others. */
  #largeWaited = false;
  /** No family took the last write: what it was about is to be written before more. */
  #failed = false;
  /** A call of `sync` goes on until nothing is left to do. */
  #syncing = false;
  #synced = false;
  /** Pending: no list has come yet, and those that an earlier run left in force stay. */
  #serviceCIDRs: "pending" | "changed" | "in force" = "changed";
  #loaded = false;
  #watching = false;
  #ahead: Promise<void> | undefined;
  /** When the oldest change that is not written yet came in, ms of the clock. */
  #pendingSince: number | undefined;
  readonly #triggers = new TriggerTimes(Date.now());
  readonly #noLocal: Record<IpFamily, NoLocalEndpointsCounter> = {
    ip: new NoLocalEndpointsCounter(),
    ip6: new NoLocalEndpointsCounter(),
  };
  readonly #reports: SyncReports;
  readonly #watcher: Watcher | undefined;
  readonly #contention: Contention;

  constructor(options: ProxierOptions) {
    this.#options = options;
    this.#log = options.log;
    this.#observers = [...(options.observers ?? [])];
    this.model = new ServiceModel({
      families: options.families,
      node: { nodeName: options.nodeName },
      onProblem: problemLogger(options.log),
      onTakeOver: takeOverLogger(options.log),
      trackReleased: options.trackReleased ?? false,
    });
    const { minSyncPeriodMs, syncPeriodMs } = options.config.nftables;
    const { log, clock, peers = PEERS_IN_PROC } = options;
    const context: ProxierContext = { log, clock, observers: this.#observers };
    this.#reports = new SyncReports({ ...context, noLocalEndpoints: this.#noLocal });
    this.#contention = new Contention({ ...context, lookup: peers });
    this.#families = options.families.map(
      (family) =>
        new FamilyProxier(family, {
          ...options,
          ...context,
          ownTable: options.ownTable === true,
          contention: this.#contention,
          syncPeriodMs,
          request: () => this.#requestIn(0),
        }),
    );
    this.#large = new LargeUpdates({
      pieceElements: options.serviceElements,
      model: this.model,
      families: this.#families,
      onViews: (family, service, views) => this.#noLocal[family].update(service, views),
      onError: (service, error) => this.#updateFailed(service, error),
      onReady: () => {
        if (!this.#syncing) this.#requestIn(0);
      },
    });
    this.#nodeRules = new NodeRules({
      ...options,
      ...context,
      families: this.#families,
      localAddresses: () => this.localAddresses(),
      onZone: (zone) => this.model.setZone(zone),
      ownTable: options.ownTable === true,
      serviceCounters: options.serviceCounters ?? "off",
    });
    this.#localAddresses = new LocalAddresses(options.kernel, options.log, () => this.#addressesChanged());
    this.#pace = new Pace(() => this.#writePaced(), {
      gapMs: Math.max(minSyncPeriodMs, BATCH_MS),
      maxRetryMs: syncPeriodMs,
      now: () => options.clock.now(),
    });
    if (options.watch !== undefined && options.watch !== false) this.#watcher = this.#newWatcher(options.watch);
  }

  /** Addresses of this node's interfaces, as they are now. */
  localAddresses(): Promise<readonly LocalAddress[]> {
    return this.#options.localAddresses?.() ?? this.#localAddresses.current();
  }

  /** What the rules would use and this kernel does not have, as far as it has been probed. */
  missingFeatures(): Promise<readonly string[]> {
    return this.#nodeRules.missingFeatures();
  }

  /** Reads what the kernel has counted, for `connections`. */
  async readCounters(): Promise<void> {
    await Promise.all(this.#families.map(({ table }) => table.readCounters()));
  }

  /** Node ports that answer on loopback, each with its protocol: those with an endpoint. */
  localhostNodePorts(family: IpFamily): number {
    return this.#families.find((one) => one.family === family)?.localhostNodePorts ?? 0;
  }

  /** Connections of "namespace/name" since its elements came, as of the last reading; by port; undefined: they are not counted. */
  connections(family: IpFamily, service: string): PortCounts {
    return this.#families.find((one) => one.family === family)?.connections(service) ?? (() => undefined);
  }

  /** Tells one more observer of what happens from now on. */
  observe(observer: ProxierObserver): void {
    this.#observers.push(observer);
  }

  /** Begins to read the kernel's tables, and to probe it, to be called before the first objects come: that takes as long as they do, and needs nothing of them. */
  readAhead(): void {
    if (this.#ahead !== undefined) return;
    this.#nodeRules.probeAhead();
    this.#ahead = this.#readAhead();
  }

  upsert(object: KubeObject): void {
    this.#pendingSince ??= this.#options.clock.now();
    switch (object.kind) {
      case "Service":
        this.#received("Service");
        if (this.model.upsert(object)) this.#changed("Service");
        return;
      case "EndpointSlice":
        if (object.counted) this.#received("EndpointSlice");
        return this.#upsertSlice(object);
      case "ServiceCIDR":
        this.model.upsert(object);
        return;
      case "Node":
        return this.#setNode(object.name, object.object);
    }
  }

  remove(kind: KubeKind, name: string): void {
    this.#pendingSince ??= this.#options.clock.now();
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
    this.#pendingSince ??= this.#options.clock.now();
    this.#serviceCIDRs = "changed";
  }

  flush(): void {
    if (!this.#synced) return;
    for (const observer of this.#observers) observer.queued?.(Date.now());
    this.#pace.request();
  }

  /** Brings the desired tables up to the objects, without the kernel's write. */
  async prepare(): Promise<void> {
    await this.#prepare(this.#options.clock.now());
    while (this.#large.size > 0) {
      await this.#large.settled();
      await this.#large.advance();
    }
  }

  /** The same, but of large services a piece. Returns when the oldest change came that it is about. @param since of those that came since the last call. */
  async #prepare(since: number): Promise<number> {
    await this.#nodeRules.refresh();
    const isFirst = !this.#loaded;
    if (isFirst) {
      await this.#ahead;
      await this.#watch();
      await this.#nodeRules.checkOwnership();
      // The sets are declared by now, so that services find what the kernel's hold.
      await Promise.all(this.#families.map((family) => family.load()));
    }
    const dirty = this.model.takeDirtyInPieces();
    for (const observer of this.#observers) observer.taken?.();
    this.#updateServiceCIDRs(dirty.serviceCIDRs);
    // The first list is long, and many clashes are: signals and health checks are not to be kept waiting.
    await runInSlices(dirty.naming);
    // Nothing is to be seen of the first write before all of it is there.
    const services = isFirst ? dirty.services : await this.#large.take(this.#withDue(dirty.services), since);
    for (const { family } of this.#families) this.#reports.underWay(family, this.#triggers.take(family), services);
    const timeSlice = new TimeSlice();
    let yielded = false;
    for (const service of services) {
      if (isFirst && this.#large.isLarge(service)) await this.#large.update(service);
      else this.#update(service);
      if (!timeSlice.spent) continue;
      await timeSlice.yield();
      yielded = true;
    }
    const updated = await this.#advanceLarge(services.length > 0);
    // The write that follows begins with a slice of its own.
    if (yielded) await yieldToEventLoop();
    if (isFirst) this.#tellFound();
    this.#loaded = true;
    return Math.min(since, ...updated.map((one) => one.since));
  }

  /** The services, and quarantined ones that are to be retried, unless that is under way. */
  #withDue(services: readonly string[]): readonly string[] {
    const due = this.#families.flatMap((family) => family.takeDue()).filter((service) => !this.#large.has(service));
    return due.length === 0 ? services : [...new Set([...services, ...due])];
  }

  /** @param others other services have changes to write, which go alone every second time. */
  async #advanceLarge(others: boolean): Promise<readonly Updated[]> {
    const waits = this.#failed || this.#hasSuspects || (others && !this.#largeWaited);
    this.#largeWaited = waits;
    if (waits || !this.#large.ready) return [];
    const updated = await this.#large.advance();
    const services = updated.map(({ service }) => service);
    for (const { family } of this.#families) this.#reports.underWay(family, [], services);
    return updated;
  }

  /** Writes now what is desired, in all families. Never throws. */
  async sync(): Promise<SyncOutcome> {
    this.#syncing = true;
    let outcome = await this.#step();
    while (outcome.ok && (this.#large.size > 0 || this.#hasSuspects)) {
      if (!this.#hasSuspects) await this.#large.settled();
      outcome = joinOutcomes(outcome, await this.#step());
    }
    this.#syncing = false;
    return outcome;
  }

  /** Changes that the kernel refused together wait for another try. Those of large services go on from there. */
  get #hasSuspects(): boolean {
    return this.#families.some(({ hasSuspects }) => hasSuspects);
  }

  /** The same, but of large services a piece. */
  async #step(): Promise<SyncOutcome> {
    let since = this.#pendingSince ?? this.#options.clock.now();
    this.#pendingSince = undefined;
    const started = performance.now();
    try {
      since = await this.#prepare(since);
    } catch (error) {
      this.#log.error({ err: error }, "reading the kernel's tables failed");
      for (const { family } of this.#families) this.#reports.report(family, started, since, { ok: false, error });
      return { ok: false, families: [] };
    }
    const families = await Promise.all(
      this.#families.map(async (family) => {
        const outcome = await family.write(this.#options.clock.now());
        this.#reports.report(family.family, started, since, outcome, this.#large.oldest);
        return { family: family.family, outcome };
      }),
    );
    const ok = families.every(({ outcome }) => outcome.ok);
    this.#failed = !families.some(({ outcome }) => outcome.ok);
    return { ok, families };
  }

  /** Compares tables with the kernel now, of large ones a part in turns, as is done every few minutes. Never throws. */
  async check(): Promise<void> {
    await this.#watcher?.check();
  }

  /** Ends; the kernel's tables stay as they are. */
  async stop(): Promise<void> {
    await this.#pace.stop();
    await this.#localAddresses.close();
    for (const family of this.#families) family.close();
    await this.#watcher?.close();
    this.#contention.close();
    this.#reports.flush();
  }

  #updateServiceCIDRs(changed: boolean): void {
    if (this.#serviceCIDRs === "pending") {
      if (!this.#loaded) for (const family of this.#families) family.keepServiceCIDRs();
      return;
    }
    if (!changed && this.#serviceCIDRs === "in force") return;
    for (const family of this.#families) family.setServiceCIDRs(this.model.serviceCIDRs(family.family));
    this.#serviceCIDRs = "in force";
  }

  /** One service that cannot be expressed must not keep the others from the kernel. */
  #update(service: string): void {
    for (const family of this.#families) {
      try {
        const views = this.model.views(family.family, service);
        this.#noLocal[family.family].update(service, views);
        family.update(service, views);
      } catch (error) {
        this.#updateFailed(service, error, family.family);
      }
    }
  }

  #updateFailed(service: string, error: unknown, family?: IpFamily): void {
    const fields = { family, ...serviceFields(service), err: error };
    this.#log.error(fields, "updating a service failed; last good version kept");
  }

  #tellFound(): void {
    const claims = this.#families.flatMap((family) =>
      family
        .leftoverClaims()
        .flatMap(({ address, protocol, port }) =>
          protocol === undefined || this.model.ownerOf(family.family, address, protocol, port) !== undefined
            ? []
            : [{ family: family.family, address, protocol, port }],
        ),
    );
    for (const observer of this.#observers) observer.found?.(claims);
  }

  async #writePaced(): Promise<{ ok: boolean; againMs?: number }> {
    const { families, ...whole } = await this.#step();
    // A table of another program's has a pace of its own.
    const ok =
      families.length === 0 ? whole.ok : families.every(({ outcome }) => outcome.ok || outcome.owned !== undefined);
    const waits = families.flatMap(({ outcome }) => (outcome.ok ? outcome.result.applyAgainMs : outcome.againMs) ?? []);
    if (!this.#failed && this.#large.ready) waits.push(0);
    return waits.length === 0 ? { ok } : { ok, againMs: Math.min(...waits) };
  }

  async #readAhead(): Promise<void> {
    try {
      await this.#watch();
      for (const { table } of this.#families) table.readAhead();
    } catch (error) {
      this.#log.debug({ err: error }, "reading ahead failed; reading with the first write");
    }
  }

  /** What changes from now on is noticed. */
  async #watch(): Promise<void> {
    if (this.#watching) return;
    await this.#watcher?.open();
    this.#watching = true;
  }

  #received(kind: "Service" | "EndpointSlice"): void {
    for (const observer of this.#observers) observer.received?.(kind);
  }

  #changed(kind: "Service" | "EndpointSlice"): void {
    for (const observer of this.#observers) observer.changed?.(kind);
  }

  #upsertSlice(slice: SliceObject): void {
    if (!this.model.upsert(slice)) return;
    this.#triggers.note(slice);
    this.#changed("EndpointSlice");
  }

  #requestIn(ms: number): void {
    if (this.#synced) this.#pace.requestIn(ms);
  }

  #newWatcher(options: true | WatcherOptions): Watcher {
    return new Watcher(
      this.#options.kernel,
      this.#families,
      this.#log,
      (inMs) => this.#requestIn(inMs),
      (reason) => {
        for (const observer of this.#observers) observer.eventsLost?.(reason);
      },
      typeof options === "object" ? options : {},
    );
  }

  #setNode(name: string | undefined, node: V1Node | undefined): void {
    if (name !== this.#options.nodeName) return;
    this.#nodeRules.node = node;
  }

  #addressesChanged(): void {
    this.#pendingSince ??= this.#options.clock.now();
    this.#nodeRules.addressesChanged();
    this.flush();
  }
}

/** Collects the daemon's status as an observer, and reports it to commands. */
import { durationText } from "../../base/duration-text.js";
import { counted } from "../../base/counted.js";
import { release } from "node:os";
import { FAMILY_NAMES } from "../../base/ip-families.js";
import type { IpFamily } from "../../base/ip.js";
import type { ServedCounts, Transfer } from "../../model/service-port-view.js";
import type { ServiceModel } from "../../model/service-model.js";
import type { ProxyHealth } from "../../observe/proxy-health.js";
import type {
  ContentionReport,
  ProxierObserver,
  RebuildReport,
  RepairReport,
  QuarantineReport,
  SyncReport,
  SyncWork,
} from "../../proxier/observer.js";
import type { Logger } from "../../base/logger.js";
import { firstOf, repairText } from "../../observe/repair-text.js";
import { TimeSlice } from "../../base/time-slice.js";
import { packetsOf, type ServedPackets, type ServicePacket } from "../../tools/explain/firewall/service-packets.js";
import type { NodeInspection } from "../../tools/node-inspection.js";
import { few, LOG_LISTS } from "../../observe/few-problems.js";
import type { ServiceStates } from "./listed-services.js";
import {
  API_VERSION,
  type ApiStatus,
  type EventList,
  type FamilyStatus,
  type HealthzStatus,
  type LastRepair,
  type StatusEvent,
  type StatusProblem,
  type NodePortStatus,
  type StatusReport,
} from "../../observe/status-report.js";

/** How long a loss of events stays a problem, ms, because it may happen again. */
const RECENT_MS = 60_000;
/** Repairs in this time are counted, ms. */
const REPAIRS_MS = 600_000;
/** Maximum number of repairs to count. */
const MOST_REPAIRS = 1000;
/** Maximum number of ignored fields to name. Only the number of the others is reported. */
const NAMED = 10;
/** Maximum number of events to keep. On a healthy node there are a few a day. */
const KEPT_EVENTS = 300;

export interface StatusBoardOptions {
  readonly log: Logger;
  readonly version: string;
  readonly nodeName: string;
  /** The served families. */
  readonly families: readonly IpFamily[];
  readonly model: Pick<
    ServiceModel,
    "counts" | "dirtyServices" | "services" | "eachView" | "lostClaims" | "unbalanced" | "problems"
  >;
  readonly health: Pick<ProxyHealth, "healthy" | "pendingMs" | "nodeIneligible">;
  /** Checks facts of the node other than rules. Default: no check. */
  readonly inspectNode?: (served: ServedPackets) => Promise<NodeInspection>;
  /** Whether a health port is served (healthzBindAddress). Default false. */
  readonly servesHealthz?: boolean;
  /** URL of the status page. Undefined if none is served. */
  readonly page?: string;
  /** Undefined if there is no API server. */
  readonly api?: () => ApiStatus | undefined;
  /**
   * Returns the number of VIPs and node ports that the kernel has from an earlier run. Called before a family's first
   * write. Default: unknown.
   */
  readonly kernelEntries?: (family: IpFamily) => Promise<number>;
  /**
   * Returns the number of ignored objects and fields in manifests, besides those that the model counts. Default: none.
   */
  readonly ignoredInManifests?: () => number;
  /** Finds services whose endpoints refuse all connections. Never rejects. Default: no check. */
  readonly failingServices?: () => Promise<readonly StatusProblem[]>;
  /** Features that this kernel lacks. Default: none. */
  readonly missingFeatures?: () => Promise<readonly string[]>;
  /** Unix time, ms. */
  readonly now?: () => number;
}

/** Returns the problems of one part of the daemon. Called for every status request, so it must be cheap. */
export type ProblemSource = () => Iterable<StatusProblem>;

/** Returns descriptions of work in progress in one part of the daemon. Must be as cheap as a ProblemSource. */
export type NoteSource = () => Iterable<string>;

/** The parts of a status that are read from the kernel. */
type Inspected = [inspection: NodeInspection | undefined, missingFeatures: readonly string[] | undefined];

export class StatusBoard implements ProxierObserver, ServiceStates {
  readonly #now: () => number;
  /** Families with active rules, with the objects written until all families had them. */
  readonly #active = new Map<IpFamily, Pick<SyncWork, "transactions" | "operations">>();
  readonly #failing = new Map<IpFamily, string>();
  readonly #quarantined: Readonly<Record<IpFamily, Map<string, string>>> = { ip: new Map(), ip6: new Map() };
  readonly #nodePorts = new Map<IpFamily, NodePortStatus>();
  readonly #sources: ProblemSource[] = [];
  readonly #noteSources: NoteSource[] = [];
  /** Oldest first. */
  readonly #events: StatusEvent[] = [];
  #inspected: { readonly at: number; readonly result: Promise<Inspected> } | undefined;
  #eventsLost: { readonly at: number; readonly reason: string } | undefined;
  #contended: ContentionReport | undefined;
  #lastRepair: LastRepair | undefined;
  /** Times of the repairs within the last REPAIRS_MS before the last one. */
  #repairs: readonly number[] = [];

  constructor(private readonly options: StatusBoardOptions) {
    this.#now = options.now ?? Date.now;
  }

  /** Adds a source of problems. The first source's problems are listed first. */
  ask(source: ProblemSource): void {
    this.#sources.push(source);
  }

  /** Adds a source of notes. */
  remark(source: NoteSource): void {
    this.#noteSources.push(source);
  }

  /** Logs the current status, and the events, oldest first. */
  say(): void {
    const { families, health, log } = this.options;
    const states = families.map((family) => {
      const inForce = this.#active.has(family);
      return [family, { inForce, ...this.#served(family), pendingMs: Math.round(health.pendingMs(family)) }] as const;
    });
    log.info({ ...this.#program(), healthy: health.healthy, ...Object.fromEntries(states) }, "status");
    for (const { at, type, message } of this.#events) {
      log.info({ at: new Date(at).toISOString(), type, event: message }, "event");
    }
  }

  #program(): Pick<StatusReport, "version" | "kernel" | "uptimeMs"> {
    return { version: this.options.version, kernel: release(), uptimeMs: Math.round(performance.now()) };
  }

  #served(family: IpFamily): ServedCounts & { readonly quarantined?: number } {
    const { size } = this.#quarantined[family];
    return { ...this.options.model.counts(family), ...(size > 0 && { quarantined: size }) };
  }

  synced({ family, ok, error = "", work }: SyncReport): void {
    if (!ok) {
      if (!this.#failing.has(family))
        this.#note("warning", `writing the ${FAMILY_NAMES[family]} table failed; retrying`);
      this.#failing.set(family, error);
      return;
    }
    if (this.#failing.delete(family)) this.#note("normal", `the ${FAMILY_NAMES[family]} table was written again`);
    const { families, log, model } = this.options;
    const isComplete = this.#active.size === families.length;
    if (work === undefined || isComplete) return;
    const before = this.#active.get(family);
    const { transactions = 0, operations = 0 } = before ?? {};
    const written = { transactions: transactions + work.transactions, operations: operations + work.operations };
    this.#active.set(family, written);
    if (before !== undefined) return;
    const { services, endpoints } = model.counts(family);
    this.#note(
      "normal",
      `${FAMILY_NAMES[family]} rules active: ${counted(services, "service")}, ${counted(endpoints, "endpoint")}`,
    );
    if (this.#active.size < families.length) return;
    const states = families.map((each) => [each, { ...this.#served(each), ...this.#active.get(each) }] as const);
    log.info({ ...this.#program(), ...Object.fromEntries(states) }, "rules active");
  }

  repaired({ family, by, changes, found, ms }: RepairReport): void {
    const told = changes.length > 0 ? changes : found;
    const now = this.#now();
    this.#repairs = [...this.#repairs.slice(1 - MOST_REPAIRS), now].filter((at) => now - at < REPAIRS_MS);
    const repair = { at: now, family, by, changes: told, ms, times: this.#repairs.length };
    this.#lastRepair = repair;
    // The contention has already been recorded, and there may be many repairs.
    if (this.#contended === undefined) this.#note("warning", repairText(repair));
  }

  rebuilt({ family, ok, refused }: RebuildReport): void {
    const outcome = ok ? "deleted and written from scratch" : "refused by the kernel even when written from scratch";
    this.#note(
      "warning",
      `the ${FAMILY_NAMES[family]} table was ${outcome}, after the kernel refused: ${firstOf(refused)}`,
    );
  }

  eventsLost(reason: string): void {
    this.#eventsLost = { at: this.#now(), reason };
    this.#note("warning", `${reason}; comparing everything with the kernel`);
  }

  nodePortAddresses(family: IpFamily, addresses: "all" | readonly string[], localhost: readonly string[] = []): void {
    const answer = { nodePortAddresses: addresses, ...(localhost.length > 0 && { localhostNodePorts: localhost }) };
    this.#nodePorts.set(family, answer);
  }

  contended(report: ContentionReport): void {
    this.#contended = report;
    this.#note("warning", `${report.by.join(", ") || "another process"} keeps changing the tables: ${report.hint}`);
  }

  uncontended(): void {
    this.#contended = undefined;
    this.#note("normal", "other processes no longer change the tables");
  }

  quarantined({ family, service, reason }: QuarantineReport): void {
    this.#quarantined[family].set(service, reason);
    this.#note("warning", `${service} quarantined (${FAMILY_NAMES[family]}): ${reason}`);
  }

  released({ family, service }: Pick<QuarantineReport, "family" | "service">): void {
    this.#quarantined[family].delete(service);
    this.#note("normal", `${service} active again (${FAMILY_NAMES[family]})`);
  }

  transferred({ service, from, reason, claims }: Transfer): void {
    const [first = ""] = claims;
    const more = claims.length > 1 ? ` and ${claims.length - 1} more` : "";
    this.#note("normal", `${service} took over ${first}${more} from ${from} (${reason})`);
  }

  active(family: IpFamily): boolean {
    return this.#active.has(family);
  }

  /** Whether no rules have been written since startup. The kernel may still serve the rules of an earlier run. */
  get writtenNothing(): boolean {
    return this.#active.size === 0;
  }

  quarantineReason(family: IpFamily, service: string): string | undefined {
    return this.#quarantined[family].get(service);
  }

  /** Answers "/v1/status" and "/v1/events" (observe/status-report.ts). Returns undefined for any other path. */
  readonly route = (path: readonly string[]): Promise<unknown> | undefined => {
    const [what] = path;
    if (path.length !== 1) return undefined;
    if (what === "status") return this.status();
    return what === "events" ? Promise.resolve(this.events()) : undefined;
  };

  /**
   * Never rejects.
   * @param maxAgeMs maximum age of what is read from the kernel, which takes tens of ms for 10,000 services. Default 0: it is read now.
   */
  async status(maxAgeMs = 0): Promise<StatusReport> {
    const { nodeName, families, model, health, servesHealthz } = this.options;
    const now = this.#now();
    if (this.#inspected === undefined || Math.abs(now - this.#inspected.at) >= maxAgeMs) {
      this.#inspected = { at: now, result: this.#inspect() };
    }
    const [inspection, missing] = await this.#inspected.result;
    // As recent as the counts of the services that they concern.
    const failing = (await this.options.failingServices?.()) ?? [];
    const ignored = await this.#ignored();
    const entries = await this.#kernelEntries();
    const api = this.options.api?.();
    const notes = this.#noteSources.flatMap((source) => [...source()]);
    return {
      apiVersion: API_VERSION,
      kind: "Status",
      ...this.#program(),
      nodeName,
      healthy: health.healthy,
      healthz: servesHealthz ? this.#healthz() : undefined,
      families: families.map((family) => ({
        family,
        inForce: this.#active.has(family),
        ...model.counts(family),
        pendingMs: Math.round(health.pendingMs(family)),
        ...this.#nodePorts.get(family),
        ...entries.get(family),
      })),
      pendingServices: model.dirtyServices,
      api,
      conntrack: inspection?.conntrack,
      firewalls: inspection?.firewalls,
      page: this.options.page,
      missingFeatures: missing ?? [],
      ignored: ignored.count + (this.options.ignoredInManifests?.() ?? 0),
      lastRepair: this.#lastRepair,
      ...(notes.length > 0 && { notes }),
      // The worst first.
      problems: [
        ...this.#writing(),
        ...this.#sources.flatMap((source) => [...source()]),
        ...this.#node(),
        ...(inspection?.problems ?? []),
        ...failing,
        ...this.#disturbed(),
        ...this.#refused(),
        ...ignored.problems,
      ],
    };
  }

  #inspect(): Promise<Inspected> {
    const { inspectNode, missingFeatures } = this.options;
    return Promise.all([inspectNode?.(this.#servedPackets()), missingFeatures?.()]);
  }

  async #kernelEntries(): Promise<ReadonlyMap<IpFamily, Pick<FamilyStatus, "kernelEntries">>> {
    const { families, kernelEntries } = this.options;
    const found = new Map<IpFamily, Pick<FamilyStatus, "kernelEntries">>();
    for (const family of families) {
      if (this.#active.has(family)) continue;
      const count = await kernelEntries?.(family).catch(() => undefined);
      if (count !== undefined) found.set(family, { kernelEntries: count });
    }
    return found;
  }

  #healthz(): HealthzStatus {
    const { healthy, nodeIneligible } = this.options.health;
    const reason = healthy ? nodeIneligible?.[0] : "changes have been pending for too long";
    return reason === undefined ? { code: 200 } : { code: 503, reason };
  }

  /** Returns where node ports are served, or undefined if that is not known yet. */
  nodePortsOf(family: IpFamily): NodePortStatus | undefined {
    return this.#nodePorts.get(family);
  }

  events(): EventList {
    return { apiVersion: API_VERSION, kind: "EventList", items: this.#events };
  }

  #note(type: StatusEvent["type"], message: string): void {
    this.#events.push({ at: this.#now(), type, message });
    if (this.#events.length > KEPT_EVENTS) this.#events.shift();
  }

  /** Computed lazily. */
  #servedPackets(): ServedPackets {
    const { families, model } = this.options;
    return {
      families: families.filter((family) => model.counts(family).endpoints > 0),
      services: { [Symbol.iterator]: () => model.services()[Symbol.iterator]() },
      packets: (service) => this.#packets(service),
    };
  }

  /** Yields a service's packets: one per combination of port, endpoint port and network with endpoints. */
  *#packets(service: string): Iterable<ServicePacket> {
    for (const family of this.options.families) {
      for (const view of this.options.model.eachView(family, service))
        if (view !== undefined) yield* packetsOf(family, view);
    }
  }

  *#writing(): Iterable<StatusProblem> {
    for (const family of this.options.families) {
      const error = this.#failing.get(family);
      if (error !== undefined) {
        const remedy = `read the log: it has the operation and the kernel's error (${error}). The former rules stay active`;
        yield { what: `the kernel refuses the ${FAMILY_NAMES[family]} table`, remedy };
      } else if (!this.#active.has(family)) {
        const remedy = "the log shows what is missing: the API server, the Node object, or complete manifests";
        yield { what: `no ${FAMILY_NAMES[family]} rules have been written since startup`, remedy };
      }
    }
    if (!this.options.health.healthy) {
      yield {
        what: "changes have been pending for too long",
        remedy: "read the log: it has the kernel's error, or the time of slow writes. /livez answers 503",
      };
    }
    if (this.#contended !== undefined) {
      const { by, hint } = this.#contended;
      yield { what: `${by.join(", ") || "another process"} keeps changing the tables`, remedy: hint };
    }
  }

  /** Reports a recent loss of events. A repaired change is only a fact: services have been served. */
  *#disturbed(): Iterable<StatusProblem> {
    const now = this.#now();
    if (this.#eventsLost !== undefined && now - this.#eventsLost.at < RECENT_MS) {
      const { at, reason } = this.#eventsLost;
      const what = `${reason} ${durationText(now - at)} ago; everything was compared with the kernel, so no change was missed`;
      yield {
        what,
        remedy: "run `nft monitor` to find the program that changes nf_tables in bulk; the rules are correct",
      };
    }
  }

  *#node(): Iterable<StatusProblem> {
    for (const [family, { nodePortAddresses: addresses = [], localhostNodePorts }] of this.#nodePorts) {
      if (addresses.length > 0 || localhostNodePorts !== undefined) continue;
      const remedy =
        "change nodePortAddresses, correct the IPs of the Node object, or give an interface such an address";
      yield {
        what: `node ports are not reachable on any ${FAMILY_NAMES[family]} address: no interface has an address that nodePortAddresses selects`,
        remedy,
      };
    }
    const ineligible = this.options.health.nodeIneligible;
    if (ineligible !== undefined) {
      const [reason, remedy] = ineligible;
      yield { what: reason, remedy: `${remedy}. Until then, load balancers send no traffic to this node` };
    }
  }

  #refused(): readonly StatusProblem[] {
    const all = this.options.families.flatMap((family) =>
      Array.from(this.#quarantined[family], ([service, reason]) => ({
        what: `${service} is quarantined (${FAMILY_NAMES[family]}): ${reason}`,
        remedy: "correct the Service; it is retried with backoff, and its last good rules stay",
        concerns: [{ service, family }],
      })),
    );
    const others = ["service is quarantined", "services are quarantined"] as const;
    return few(all, others, "run `nft-proxier services` to see them");
  }

  /** Yields to the event loop, because there may be many. */
  async #ignored(): Promise<{ readonly count: number; readonly problems: readonly StatusProblem[] }> {
    const { model } = this.options;
    const slice = new TimeSlice();
    const problems: StatusProblem[] = [];
    let others = 0;
    let ignored = 0;
    for (const of of ["lostClaims", "unbalanced", "problems"] as const) {
      for (const { kind, object, field, reason } of model[of]()) {
        if (of === "problems") ignored++;
        else others++;
        const remedy = `change the ${kind}; the rest of it is served`;
        const concerns = kind === "Service" ? [{ service: object }] : undefined;
        if (problems.length < NAMED)
          problems.push({ what: `${kind} ${object}: ${field}: ${reason}`, remedy, concerns });
        if (slice.spent) await slice.yield();
      }
    }
    const more = others + ignored - problems.length;
    if (more > 0)
      problems.push({
        what: counted(more, "more field is ignored", "more fields are ignored"),
        remedy: LOG_LISTS,
      });
    return { count: ignored, problems };
  }
}

import { type Pieces, runAtOnce } from "../base/time-slice.js";
import { isUsable, type NodeContext } from "./categorize-endpoints.js";
import { Claims, portOf } from "./claims.js";
import { type FamilyClaims, endRound, nameLosses, nameTransfers, type PassedClaims, presentLosses } from "./clashes.js";
import {
  type EndpointColumns,
  type KubeObject,
  sameDetails,
  sameService,
  sameSlice,
  type ServiceRecord,
  type SliceRecord,
} from "../objects/records.js";
import { ProblemLog } from "./problem-log.js";
import { ServedCounter } from "./served-counter.js";
import { ServiceCIDRs } from "./service-cidrs.js";
import { candidatesOf, clusterIPsAmong, withChanges } from "./slices.js";
import { endpointsAmong, removedAddresses } from "./removed-endpoints.js";
import type {
  HealthCheck,
  Problem,
  RemovedAddress,
  ServedCounts,
  ServicePortView,
  ServiceTarget,
  Transfer,
} from "./service-port-view.js";
import type { AddressKey, ServiceAddress } from "./service-address.js";
import type { IpFamily } from "../base/ip.js";
import type { Protocol } from "../base/protocols.js";
import {
  healthCheckOf,
  type ServedService,
  sizeOf,
  targetIn,
  targetsOf,
  unbalanced,
  viewsOf,
  viewsWithCandidates,
} from "./views.js";

export interface ServiceModelOptions {
  /** The served families; objects of another family are ignored. */
  readonly families: readonly IpFamily[];
  /** This node's current data: the zone may change, the name does not. */
  readonly node: NodeContext;
  /** Remember removed addresses until `takeRemovals`; default: false. */
  readonly trackRemovals?: boolean;
  /** Called once per part of an object that cannot be served, and per claim that another service has too. */
  onProblem(problem: Problem): void;
  /** Called for claims that passed from one service to another since the last `takeDirty`. */
  onTransfer?(transfer: Transfer): void;
  /** Called for each address that a service had and has lost, whether or not another service has it now. */
  onLost?(address: AddressKey): void;
}

/** Changes since the last call of `takeDirty`. */
interface Dirty {
  /** "namespace/name" without duplicates: every service whose views may differ, including deleted ones. */
  readonly services: readonly string[];
  readonly serviceCIDRs: boolean;
}

/**
 * A service that has an object or slices, or had them at the last `takeDirty`. All data per service is here. Each additional
 * Map would grow at the same moment, and V8 takes 3 ms to copy one with 32,768 entries.
 */
interface ServiceEntry {
  /** "namespace/name". All users share one string, so that maps compare it by address and hash it once. */
  readonly name: string;
  record: ServiceRecord | undefined;
  /** The record at the last `takeDirty`. */
  ofLastRound: ServiceRecord | undefined;
  /** In the order of their names, without `changes`: see slicesOf. */
  slices: readonly SliceRecord[];
  /** By name: slices that changed since `slices` was read. Undefined: the slice is gone. */
  changes: Map<string, SliceRecord | undefined> | undefined;
  sliceCount: number;
  /** Its views may differ since the last `takeDirty`. */
  dirty: boolean;
}

const NO_SLICES: readonly SliceRecord[] = Object.freeze([]);

function slicesOf(entry: ServiceEntry | undefined): readonly SliceRecord[] {
  if (entry?.changes !== undefined) {
    entry.slices = withChanges(entry.slices, entry.changes);
    entry.changes = undefined;
  }
  return entry?.slices ?? NO_SLICES;
}

/** More slices than change between two writes. */
const MAX_FORMER_SLICES = 1 << 14;

/**
 * All Services, EndpointSlices and ServiceCIDRs, and their meaning on this node. Keeps a compact record of each object, not the
 * object. Of Nodes, it only keeps the problems. Computes everything on demand, and only for one service. An upsert without a relevant change has no effect. Never
 * throws, whatever an object contains.
 */
export class ServiceModel {
  readonly #families: readonly IpFamily[];
  readonly #problems: ProblemLog;
  readonly #unbalanced: ProblemLog;
  #node: NodeContext;

  readonly #services = new Map<string, ServiceEntry>();
  /** Why services are not served by rule. */
  readonly #skipped = new Map<string, string>();
  readonly #slices = new Map<string, SliceRecord>();
  readonly #claims: Readonly<Record<IpFamily, Claims>>;
  /** Former versions of slices that changed or were removed since the last `takeRemovals`. Undefined if not tracked. */
  readonly #formerSlices: SliceRecord[] | undefined;
  readonly #cidrs = new ServiceCIDRs();
  readonly #counts: ServedCounter;

  /** Entries with `dirty` set. */
  #dirty: ServiceEntry[] = [];
  #cidrsDirty = false;

  constructor(private readonly options: ServiceModelOptions) {
    this.#families = options.families;
    this.#counts = new ServedCounter(options.families);
    this.#problems = new ProblemLog((problem) => options.onProblem(problem));
    this.#unbalanced = new ProblemLog((problem) => options.onProblem(problem));
    this.#node = options.node;
    const track = options.trackRemovals ?? false;
    this.#formerSlices = track ? [] : undefined;
    this.#claims = { ip: this.#newClaims("ip", track), ip6: this.#newClaims("ip6", track) };
  }

  /** Number of service names, from Services and EndpointSlices. */
  get size(): number {
    return this.#services.size;
  }

  #newClaims(family: IpFamily, keepUnclaimed: boolean): Claims {
    return new Claims(family, {
      affected: (service) => this.#markDirty(this.#entry(service)),
      usable: ({ name }, port) => {
        return isUsable(candidatesOf(slicesOf(this.#services.get(name)), family, port.name, port.protocol));
      },
      ofLastRound: (service) => this.#services.get(service)?.ofLastRound,
      keepUnclaimed,
      lost: (address) => this.options.onLost?.(address),
    });
  }

  /** Sets this node's zone. If it changed, every service with endpoints becomes dirty. */
  setZone(zone: string | undefined): void {
    if (zone === this.#node.zone) return;
    const { nodeName } = this.#node;
    this.#node = zone === undefined ? { nodeName } : { nodeName, zone };
    for (const entry of this.#services.values()) if (entry.sliceCount > 0) this.#touch(entry);
  }

  /** Returns whether anything relevant changed. */
  upsert(object: KubeObject): boolean {
    const { kind, name } = object;
    this.#problems.update(kind, name, object.problems, object.refused);
    if (object.kind === "Service") this.#noteSkipped(name, object.skipped);
    if (object.record === undefined) return this.#drop(kind, name);
    switch (object.kind) {
      case "Service":
        return this.#putService(object.record);
      case "EndpointSlice":
        return this.#families.includes(object.record.family) ? this.#putSlice(object.record) : this.#dropSlice(name);
      case "ServiceCIDR":
        return this.#markCIDRs(this.#cidrs.put(name, object.record));
      case "Node":
        return false;
    }
  }

  /** Returns whether anything relevant changed. @param name "namespace/name", or only the name of a ServiceCIDR. */
  remove(kind: KubeObject["kind"], name: string): boolean {
    this.#problems.update(kind, name, undefined);
    if (kind === "Service") this.#noteSkipped(name, undefined);
    return this.#drop(kind, name);
  }

  #noteSkipped(name: string, reason: string | undefined): void {
    if (reason === undefined) this.#skipped.delete(name);
    else this.#skipped.set(name, reason);
  }

  /** Returns why a service has no views, as a clause about it. Undefined if it does not exist. */
  whyNotServed(service: string): string | undefined {
    const skipped = this.#skipped.get(service);
    if (skipped !== undefined) return skipped;
    if (this.#services.get(service)?.record !== undefined)
      return "no address of it is of a family that this node serves";
    const problem = [...this.#problems.present()].find(({ kind, object }) => kind === "Service" && object === service);
    return problem && `${problem.field}: ${problem.reason}`;
  }

  /** The ServiceCIDRs of a family: canonical, sorted, without overlap. */
  serviceCIDRs(family: IpFamily): readonly string[] {
    return this.#cidrs.merged[family];
  }

  /** Parts of the objects that cannot be served. */
  problems(): Iterable<Problem> {
    return this.#problems.present();
  }

  /** Claims that services have lost to others now. Only checks services that share a claim. */
  lostClaims(): Iterable<Problem> {
    return presentLosses(this.#familyClaims(), (service) => this.#services.get(service)?.record);
  }

  /** Balance annotations that the last `takeDirty` found to need too many endpoints or elements. */
  unbalanced(): Iterable<Problem> {
    return this.#unbalanced.present();
  }

  /** "namespace/name" of each slice whose service does not exist or is not served, and of that service. */
  *straySlices(): Iterable<{ readonly name: string; readonly service: string }> {
    for (const { name, service } of this.#slices.values()) {
      if (this.#services.get(service)?.record === undefined) yield { name, service };
    }
  }

  /** Returns the changes since the last call, and reports claims that were lost, or passed to another service, since then. */
  takeDirty(): Dirty {
    const { naming, ...dirty } = this.takeDirtyInPieces();
    runAtOnce(naming);
    return dirty;
  }

  /**
   * Like `takeDirty`, but leaves the reports to `naming`, because tens of thousands of claims take long. Run it to its end
   * before the next call. Objects may change in between: they become dirty again, and problems that are over by then are not
   * reported.
   */
  takeDirtyInPieces(): Dirty & { readonly naming: Pieces<void> } {
    const entries = this.#dirty;
    const services = entries.map(({ name }) => name);
    const serviceCIDRs = this.#cidrsDirty;
    this.#dirty = [];
    this.#cidrsDirty = false;
    // End the round only at the end of a group of changes, so that an address that moves between services in it is not a clash.
    const passed = endRound(this.#familyClaims());
    for (const entry of entries) {
      entry.dirty = false;
      entry.ofLastRound = entry.record;
      this.#dropIfEmpty(entry);
    }
    return { services, serviceCIDRs, naming: this.#naming(entries, passed) };
  }

  /** "namespace/name" of every service that is served in any family. */
  *services(): Iterable<string> {
    for (const { name, record } of this.#services.values()) if (record !== undefined) yield name;
  }

  /**
   * Numbers of services with a ClusterIP in the family, and of ready endpoints in their slices. Each address of a slice counts
   * once.
   */
  counts(family: IpFamily): ServedCounts {
    return this.#counts.of(family);
  }

  /** Services that changed since the last `takeDirty`. */
  get dirtyServices(): number {
    return this.#dirty.length;
  }

  /** Whether the views of the service may differ since the last `takeDirty`. */
  isDirty(service: string): boolean {
    return this.#services.get(service)?.dirty === true;
  }

  /** Settings from its annotations that are not in its views. Returns undefined if the service is gone or not served. */
  askedFor(service: string): Pick<ServiceRecord, "balance" | "drainSeconds"> | undefined {
    return this.#services.get(service)?.record;
  }

  /** The current service ports of a service in a family. Empty if it is gone or not served there. */
  views(family: IpFamily, service: string): ServicePortView[] {
    return [...this.eachView(family, service)].filter((view) => view !== undefined);
  }

  /**
   * Like `views`, each computed on demand, because a service may have tens of thousands of ports. They reflect the current
   * record and slices, even if these change meanwhile. Claims of other services may change in between, which makes the service
   * dirty again. Undefined is a pause: one port may have a hundred thousand endpoints.
   */
  eachView(family: IpFamily, service: string): Iterable<ServicePortView | undefined> {
    const served = this.#served(family, service);
    return served === undefined ? [] : viewsOf(served);
  }

  /** Like `eachView`, each with all endpoints of the port, for operators. */
  eachViewWithCandidates(
    family: IpFamily,
    service: string,
  ): Iterable<readonly [view: ServicePortView, candidates: EndpointColumns]> {
    const served = this.#served(family, service);
    return served === undefined ? [] : viewsWithCandidates(served);
  }

  /** An upper estimate of the views' number of elements. It may be too low if annotations ask for slots. */
  sizeOf(family: IpFamily, service: string): number {
    const served = this.#served(family, service);
    return served === undefined ? 0 : sizeOf(served);
  }

  /** The same service ports for existing connections, each computed on demand. */
  targets(family: IpFamily, service: string): Iterable<ServiceTarget> {
    const served = this.#served(family, service);
    return served === undefined ? [] : targetsOf(served);
  }

  /** The service port with this port or node port. Returns undefined if the service has none. */
  target(
    family: IpFamily,
    service: string,
    by: "port" | "nodePort",
    protocol: Protocol,
    port: number,
  ): ServiceTarget | undefined {
    const served = this.#served(family, service);
    const item = served && portOf(served.record, protocol, port, by);
    return served === undefined || item === undefined ? undefined : targetIn(served, item);
  }

  /** The current health check of a service in a family, for load balancers. Returns undefined if it has none. */
  healthCheck(family: IpFamily, service: string): HealthCheck | undefined {
    const served = this.#served(family, service);
    return served && healthCheckOf(served);
  }

  /** Returns undefined if the service is gone, or not served in the family. */
  #served(family: IpFamily, service: string): ServedService | undefined {
    const entry = this.#services.get(service);
    const record = entry?.record;
    const addresses = record?.[family];
    if (record === undefined || addresses === undefined || !this.#families.includes(family)) return undefined;
    return { family, record, addresses, slices: slicesOf(entry), claims: this.#claims[family], node: this.#node };
  }

  /** The service that has an address and port, or (`address` "") a node port. Returns undefined if none has. */
  ownerOf(address: ServiceAddress): string | undefined {
    return this.#claims[address.family].owner(address);
  }

  /** The service of each ClusterIP. Reads all services, so call it only for a request. */
  clusterIPs(): Map<string, string> {
    const owners = new Map<string, string>();
    for (const { name, record } of this.#services.values()) {
      for (const family of this.#families) {
        const address = record?.[family]?.clusterIP;
        if (address !== undefined) owners.set(address, name);
      }
    }
    return owners;
  }

  /** Endpoints that no packet reaches, because they are ClusterIPs. Reads all objects, so call it only for a request. */
  *endpointsAtClusterIPs(): Iterable<Problem> {
    const owners = this.clusterIPs();
    for (const { name, endpoints } of this.#slices.values()) {
      for (const reason of clusterIPsAmong(endpoints, owners)) {
        yield { kind: "EndpointSlice", object: name, field: "endpoints", reason };
      }
    }
  }

  /** The members of `endpoints` ("address port PROTOCOL") that are in any slice, in any state. */
  endpointsAmong(family: IpFamily, endpoints: ReadonlySet<string>): Set<string> {
    return endpointsAmong(this.#slices.values(), family, endpoints);
  }

  /** Addresses removed from services since the last call, if no service has them now. Needs `trackRemovals`. */
  takeRemovals(): RemovedAddress[] {
    const former = this.#formerSlices?.splice(0) ?? [];
    const slices = (service: string) => slicesOf(this.#services.get(service));
    return this.#families.flatMap((family) =>
      removedAddresses(family, this.#claims[family].takeUnclaimed(), former, slices),
    );
  }

  /** metadata.uid of a service; "" if the service is gone or not served, or has none. */
  uidOf(service: string): string {
    return this.#services.get(service)?.record?.uid ?? "";
  }

  #putService(record: ServiceRecord): boolean {
    const entry = this.#entry(record.name);
    const before = entry.record;
    if (before !== undefined && sameService(before, record)) return false;
    entry.record = record;
    this.#counts.service(before, record, slicesOf(entry));
    this.#claim(before, record);
    this.#markDirty(entry);
    return true;
  }

  #drop(kind: KubeObject["kind"], name: string): boolean {
    switch (kind) {
      case "Service":
        return this.#dropService(name);
      case "EndpointSlice":
        return this.#dropSlice(name);
      case "ServiceCIDR":
        return this.#markCIDRs(this.#cidrs.delete(name));
      case "Node":
        return false;
    }
  }

  #dropService(name: string): boolean {
    const entry = this.#services.get(name);
    if (entry?.record === undefined) return false;
    const before = entry.record;
    entry.record = undefined;
    this.#counts.service(before, undefined, slicesOf(entry));
    this.#claim(before, undefined);
    this.#markDirty(entry);
    return true;
  }

  #entry(name: string): ServiceEntry {
    const known = this.#services.get(name);
    if (known !== undefined) return known;
    const entry: ServiceEntry = {
      name,
      record: undefined,
      ofLastRound: undefined,
      slices: NO_SLICES,
      changes: undefined,
      sliceCount: 0,
      dirty: false,
    };
    this.#services.set(name, entry);
    return entry;
  }

  /** Keeps an entry that is marked, so that a service that returns meanwhile is the same one. */
  #dropIfEmpty({ name, record, sliceCount, dirty }: ServiceEntry): void {
    if (record === undefined && sliceCount === 0 && !dirty) this.#services.delete(name);
  }

  #claim(before: ServiceRecord | undefined, after: ServiceRecord | undefined): void {
    for (const family of this.#families) this.#claims[family].put(before, after);
  }

  #putSlice(record: SliceRecord): boolean {
    const before = this.#slices.get(record.name);
    if (before !== undefined) {
      if (sameSlice(before, record)) {
        if (!sameDetails(before, record)) this.#replaceSlice(this.#entry(record.service), record);
        return false;
      }
      if (before.service !== record.service) this.#dropSlice(record.name);
    }
    const entry = this.#entry(record.service);
    if (before?.service === record.service) {
      this.#rememberSlice(before);
      this.#counts.slice(entry.record, before, -1);
    }
    this.#counts.slice(entry.record, record, 1);
    this.#replaceSlice(entry, record);
    this.#touch(entry);
    return true;
  }

  #replaceSlice(entry: ServiceEntry, record: SliceRecord): void {
    if (!this.#slices.has(record.name)) entry.sliceCount++;
    this.#slices.set(record.name, record);
    // The only slice of nearly every service needs no Map.
    if (entry.sliceCount === 1 && entry.changes === undefined) entry.slices = [record];
    else (entry.changes ??= new Map<string, SliceRecord | undefined>()).set(record.name, record);
  }

  #dropSlice(name: string): boolean {
    const before = this.#slices.get(name);
    if (before === undefined) return false;
    this.#slices.delete(name);
    this.#rememberSlice(before);
    const entry = this.#entry(before.service);
    this.#counts.slice(entry.record, before, -1);
    entry.sliceCount--;
    if (entry.sliceCount === 0) [entry.slices, entry.changes] = [NO_SLICES, undefined];
    else (entry.changes ??= new Map<string, SliceRecord | undefined>()).set(name, undefined);
    this.#touch(entry);
    this.#dropIfEmpty(entry);
    return true;
  }

  /** Without calls of `takeRemovals`, the oldest slices are dropped first. */
  #rememberSlice(slice: SliceRecord): void {
    if (this.#formerSlices === undefined) return;
    if (this.#formerSlices.push(slice) <= 2 * MAX_FORMER_SLICES) return;
    this.#formerSlices.splice(0, MAX_FORMER_SLICES);
  }

  /** A service without an object needs no write. It becomes dirty when the object arrives. */
  #touch(entry: ServiceEntry): void {
    if (entry.record === undefined) return;
    this.#markDirty(entry);
    for (const family of this.#families) this.#claims[family].endpointsChanged(entry.record);
  }

  #markDirty(entry: ServiceEntry): void {
    if (entry.dirty) return;
    entry.dirty = true;
    this.#dirty.push(entry);
  }

  #markCIDRs(changed: boolean): boolean {
    this.#cidrsDirty ||= changed;
    return changed;
  }

  /** Returns whether a check was needed. */
  #nameUnbalanced({ name, record }: ServiceEntry): boolean {
    if (record?.balance === undefined && this.#unbalanced.silent) return false;
    const found = this.#families.map((family) => unbalanced(this.#served(family, name)));
    const problem = found.find((one) => one !== undefined);
    this.#unbalanced.update("Service", name, problem && new Map([problem]));
    return true;
  }

  *#naming(changed: readonly ServiceEntry[], passed: PassedClaims): Pieces<void> {
    const claims = this.#familyClaims();
    if (claims.some(([, ofFamily]) => ofFamily.contested))
      yield* nameLosses(claims, changed, (problem) => this.options.onProblem(problem));
    yield* nameTransfers(passed, (transfer) => this.options.onTransfer?.(transfer));
    for (const entry of changed) if (this.#nameUnbalanced(entry)) yield;
  }

  #familyClaims(): FamilyClaims {
    return this.#families.map((family) => [family, this.#claims[family]] as const);
  }
}

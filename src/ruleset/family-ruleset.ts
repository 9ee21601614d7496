/**
 * The desired table of one family: takes service port views, and declares elements and chains. A change of one service only
 * touches that service's elements; nothing here grows with the cluster.
 */
import { IndexAssigner } from "../model/balance/indices.js";
import { endpointsOf, type ListKind } from "../model/slots.js";
import type { EndpointList } from "../objects/endpoint-list.js";
import type { IpFamily } from "../base/ip.js";
import type { Pieces } from "../base/time-slice.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { FaultyObject, TableDeclarations } from "../nft/engine-exports.js";
import {
  busyAddresses,
  type ConnectionCounts,
  connectionsOf,
  connectionsOfEndpoints,
  NOT_COUNTED,
} from "./connection-counts.js";
import { DrawChains } from "./draw-chains.js";
import { LimitChains } from "./limit-chains.js";
import { AffinityNumbers } from "./affinity-numbers.js";
import { attribute, type Attribution } from "./attribution.js";
import type { ServiceAddress } from "../model/service-address.js";
import { KernelOrder } from "./kernel-order.js";
import { KeyPacker, type ServiceKey, unpackServiceKey } from "./key-packer.js";
import { RulesOnDemand } from "./on-demand.js";
import { hasOwnObjects, ownObjects } from "./own-objects.js";
import { forEachAddress, ServiceExpander } from "./service-expander.js";
import { type Expansion, NOTHING_EXPANDED } from "./expansion.js";
import type { PortName, ServicePortState } from "./service-port-state.js";
import { assignSlots, isBalanced } from "./slot-assigner.js";
import { declareSets, type ElementSets } from "./element-sets.js";
import type { ServiceCounters } from "./service-counters.js";
import { declareSkeleton, type RulesetOptions, type SkeletonOptions } from "./skeleton.js";

export type { RulesetOptions };

/** A service's state in the table, which can be restored. */
export type ServiceState = readonly ServicePortState[];

const NOTHING: ServiceState = Object.freeze([]);

/** Number of ports from which on an index is faster than searches. */
const INDEXED_PORTS = 16;

/**
 * Returns a function that finds a view's port among `ports`; -1 if it is new. If there are several, because an update in pieces
 * was interrupted, it returns the last, which is the newest.
 */
function finderIn(ports: ServiceState): (port: PortName) => number {
  if (ports.length <= INDEXED_PORTS) {
    return ({ portName, protocol }) =>
      ports.findLastIndex(({ view }) => view.portName === portName && view.protocol === protocol);
  }
  const byName = new Map(ports.map(({ view }, i) => [`${view.protocol} ${view.portName}`, i]));
  return ({ portName, protocol }) => byName.get(`${protocol} ${portName}`) ?? -1;
}

/**
 * Maximum number of elements per service and family: twice as many as a cluster of 50,000 services with ten endpoints each.
 * They take about 100 MB of memory here, and as much in the kernel.
 */
const MAX_ELEMENTS = 2 ** 20;

/** Throws RangeError if the views need more elements than one service may have. Slots have a separate limit. */
function checkSize(views: readonly ServicePortView[]): void {
  let elements = 0;
  for (const view of views)
    elements += addressesOf(view) * (1 + view.clusterEndpoints.length + view.localEndpoints.length);
  if (elements <= MAX_ELEMENTS) return;
  throw new RangeError(
    `its ports, addresses and endpoints need ${elements.toLocaleString("en")} elements, more than the ` +
      `${MAX_ELEMENTS.toLocaleString("en")} that one service may have`,
  );
}

/** Elements and ports of a piece, unless one port has more elements. Each pause costs as much as a port that hardly changes. */
const LEAST_PIECE = 16;
const MOST_PORTS = 16;

/** Maximum number of endpoint elements that are added or removed at once: takes 1 to 3 ms. */
const MOST_LISTED = 4096;

/** The chains of a single port cost the kernel about as much as this many elements. */
const OWN_CHAINS = 128;

function addressesOf({ externalIPs, loadBalancerIPs, nodePort }: ServicePortView): number {
  return 1 + externalIPs.length + loadBalancerIPs.length + (nodePort === 0 ? 0 : 1);
}

/** Approximate number of elements of a service port. */
function weightOf(state: ServicePortState): number {
  const { view, cluster, local, slots } = state;
  const places = slots === undefined ? cluster.length + local.length : slots.cluster.length + slots.local.length;
  return addressesOf(view) * (1 + places) + (hasOwnObjects(view) ? OWN_CHAINS : 0);
}

/** Length of the state's longest list, in endpoints or slots. */
function lengthOf({ cluster, local, slots }: ServicePortState): number {
  return Math.max(cluster.length, local.length, slots?.cluster.length ?? 0, slots?.local.length ?? 0);
}

/** Endpoints of one port that are added or removed at once. */
function partOf({ view }: ServicePortState): number {
  return Math.ceil(MOST_LISTED / addressesOf(view));
}

/**
 * Whether the port is replaced by the new one in one piece. It is small, and no address of it goes: another port may have been
 * given that address, and take it over later.
 */
function isReplacedAtOnce(former: ServicePortState, state: ServicePortState): boolean {
  const [a, b] = [former.view, state.view];
  return (
    former.begun === undefined &&
    Math.max(weightOf(former), weightOf(state)) <= MOST_LISTED &&
    a.port === b.port &&
    a.protocol === b.protocol &&
    a.clusterIP === b.clusterIP &&
    a.externalIPs === b.externalIPs &&
    a.loadBalancerIPs === b.loadBalancerIPs &&
    a.nodePort === b.nodePort
  );
}

/** Approximate number of elements of the state. */
export function elementsOf(state: ServiceState): number {
  return state.reduce((sum, port) => sum + weightOf(port), 0);
}

/** Options evaluated when a port's turn comes. */
export interface PieceOptions {
  /**
   * Returns false if addresses of the view have passed to another service meanwhile, and must not be taken back. The port then
   * stays unchanged.
   */
  readonly isCurrent?: (view: ServicePortView) => boolean;
  /** Returns false if the view's former elements must stay for now. They then stay beside the new ones. */
  readonly mayGo?: (view: ServicePortView) => boolean;
}

export class FamilyRuleset {
  readonly family: IpFamily;
  readonly #keys: KeyPacker;
  readonly #expander: ServiceExpander;
  readonly #affinity: AffinityNumbers;
  readonly #kernelOrder: KernelOrder;
  readonly #sets: ElementSets;
  readonly #ports = new Map<string, ServiceState>();
  /** Number of ports that use each chain or set of their own, because ports of a service may share it. */
  readonly #ownUses = new Map<string, number>();
  /** Elements that were added or got other data. */
  #added = 0;
  readonly #draws: DrawChains;
  readonly #limits: LimitChains;
  readonly #onDemand: RulesOnDemand;
  readonly #counters: ServiceCounters;
  #options: SkeletonOptions;

  /** @param firstNumber for endpoints with affinity; random by default, see AffinityNumbers. */
  constructor(
    private readonly table: TableDeclarations,
    family: IpFamily,
    options: RulesetOptions,
    firstNumber?: number,
  ) {
    this.family = family;
    this.#keys = new KeyPacker(family);
    this.#options = { ...options, family };
    this.#counters = options.counters ?? "off";
    this.#sets = declareSets(table, family, this.#counters);
    this.#limits = new LimitChains(table, family, this.#sets, {
      rejects: options.rejectInPrerouting !== false,
      counters: this.#counters,
    });
    this.#onDemand = new RulesOnDemand(this.#sets);
    this.#declare();
    this.#draws = new DrawChains(table, this.#sets, options.masqueradeBit);
    this.#expander = new ServiceExpander(table, this.#sets, this.#keys);
    this.#affinity = new AffinityNumbers(this.#sets, this.#keys, firstNumber);
    this.#kernelOrder = new KernelOrder(this.#sets, this.#keys);
    this.#replaceNodePortIPs();
  }

  /** Applies other options, and declares the affected objects of services again. */
  setOptions(options: RulesetOptions): void {
    this.#options = { ...options, family: this.family };
    this.#declare();
    this.#replaceNodePortIPs();
    for (const state of this.#ports.values()) for (const port of state) this.#declareOwn(port);
    this.#draws.masqueradeBit = options.masqueradeBit;
    this.#limits.rejects = options.rejectInPrerouting !== false;
  }

  /** Drops packets to addresses of these networks that no service has. */
  setServiceCIDRs(cidrs: readonly string[]): void {
    this.#sets.serviceCIDRs.replaceNets(cidrs);
    this.#declare();
  }

  /** Keeps the networks in the kernel's table, once it has been read. */
  keepServiceCIDRs(): void {
    this.#sets.serviceCIDRs.desireObserved();
    this.#declare();
  }

  /**
   * Declares exactly these views of `service` ("namespace/name"), or removes it if there are none. Throws RangeError if they
   * cannot be expressed. Then nothing has changed, except that new chains which services share may stay until they are collected.
   */
  update(service: string, views: readonly ServicePortView[]): void {
    const before = [...this.state(service)];
    try {
      for (const _ of this.updateInPieces(service, views));
    } catch (error) {
      this.restore(service, before);
      throw error;
    }
  }

  /**
   * Like `update`, in pieces. Each yields its approximate number of elements, or undefined for a pause. The desired state may be
   * written in between. Each port has either its former or its new elements. Nothing is removed before everything new is added, so an address that
   * passes from one port to another is served all the time. Returns false if other calls updated or restored the service
   * meanwhile. Throws RangeError like `update`; then the service has some of both.
   */
  *updateInPieces(
    service: string,
    views: readonly ServicePortView[],
    options: PieceOptions = {},
  ): Generator<number | undefined, boolean> {
    checkSize(views);
    // The service's current state. It contains the former ports until they are replaced or removed, and the new ones.
    const present = [...this.state(service)];
    this.#ports.set(service, present);
    for (const weight of this.#pieces(views, present, options)) {
      yield weight;
      if (this.#ports.get(service) !== present) return false;
    }
    if (present.length === 0) this.#ports.delete(service);
    return true;
  }

  *#pieces(
    views: readonly ServicePortView[],
    present: ServicePortState[],
    { isCurrent, mayGo }: PieceOptions,
  ): Generator<number | undefined, void> {
    const before = [...present];
    const find = finderIn(before);
    const place = this.#placing(before, present);
    // Indexed like `before`: 1 if the port stays.
    const stays = new Uint8Array(before.length);
    let weight = 0;
    for (const [i, view] of views.entries()) {
      const at = find(view);
      const former = before[at] as ServicePortState | undefined;
      const state = yield* place(view, former);
      const isStill = (): boolean => isCurrent?.(view) !== false;
      if (former !== undefined && isReplacedAtOnce(former, state) && isStill()) {
        weight += this.#exchange([state], [former]);
        present[at] = state;
        stays[at] = 1;
      } else if (yield* this.#add(state, present, isStill)) weight += Math.min(weightOf(state), MOST_LISTED);
      else if (former !== undefined) stays[at] = 1;
      if (weight < LEAST_PIECE && (i + 1) % MOST_PORTS > 0 && i + 1 < views.length) continue;
      yield weight;
      weight = 0;
    }
    // From the last to the first, so that the port that takes the place of a removed one stays.
    for (let at = before.length - 1; at >= 0; at--) {
      if (stays[at] === 1 || mayGo?.(before[at].view) === false) {
        if (at % MOST_PORTS === 0) yield 0;
        continue;
      }
      yield* this.#remove(present, at);
      yield Math.min(weightOf(before[at]), MOST_LISTED);
    }
  }

  /**
   * Adds a port to `present`, with its endpoints first. Yields the number of elements after each part but the last. Returns false,
   * and adds nothing, if it is no longer current before a part.
   */
  *#add(state: ServicePortState, present: ServicePortState[], isCurrent: () => boolean): Generator<number, boolean> {
    const at = present.length;
    const [length, part] = [lengthOf(state), partOf(state)];
    // A map that becomes too small is written again as a whole, so this should happen while it has few elements.
    if (length > part)
      this.#expander.expandLists(state, {
        ...NOTHING_EXPANDED,
        endpoints: (set, _key, _base, list) => set.plan(list.length),
      });
    let begun = 0;
    for (; length - begun > part && isCurrent(); begun += part) {
      this.#expander.expandPart(state, begun, begun + part, this.#adding);
      present[at] = { ...state, begun: begun + part };
      yield MOST_LISTED;
    }
    if (!isCurrent()) {
      if (begun > 0) yield* this.#remove(present, at);
      return false;
    }
    this.#useOwn(state);
    this.#expander.expandRest(state, begun, this.#adding);
    present[at] = state;
    if (this.#onDemand.ensure()) this.#declare();
    return true;
  }

  /** Removes the port at this index of `present`, its endpoints last. The last port takes its place. Yields like `#add`. */
  *#remove(present: ServicePortState[], at: number): Generator<number, void> {
    const state = present[at];
    const part = partOf(state);
    let end = state.begun ?? lengthOf(state);
    if (state.begun === undefined) {
      this.#releaseOwn(state);
      this.#expander.expandRest(state, Math.max(0, end - part), this.#removing);
      end -= part;
    }
    for (; end > 0; end -= part) {
      present[at] = { ...state, begun: end };
      yield MOST_LISTED;
      this.#expander.expandPart(state, Math.max(0, end - part), end, this.#removing);
    }
    const last = present.pop()!;
    if (at < present.length) present[at] = last;
  }

  /**
   * Returns a function that assigns places to the endpoints of one view after another. Its `former` is the view's former port.
   */
  #placing(
    before: ServiceState,
    present: ServiceState,
  ): (view: ServicePortView, former: ServicePortState | undefined) => Pieces<ServicePortState> {
    // After an interrupted update, an older version of a port may have affinity and the newest none. A second list of endpoints
    // would forget the clients of the first.
    const withAffinity = before.filter((state) => state.affinity !== undefined);
    const findWithAffinity = finderIn(withAffinity);
    const lists = new Set<number>();
    const assigners = { cluster: new IndexAssigner(), local: new IndexAssigner() };
    const [numbers, kernelOrder, limitChains] = [this.#affinity, this.#kernelOrder, this.#limits];
    return function* (view, former) {
      let state: ServicePortState;
      if (view.affinitySeconds > 0)
        state = yield* numbers.order(view, withAffinity[findWithAffinity(view)] ?? former, lists);
      else if (isBalanced(view))
        state = yield* assignSlots(view, [...before, ...present], former, kernelOrder.stood(view));
      else {
        const order = (kind: ListKind): Pieces<EndpointList> =>
          former === undefined
            ? kernelOrder.order(view, kind)
            : assigners[kind].assign(former[kind], endpointsOf(view, kind));
        state = { view, cluster: yield* order("cluster"), local: yield* order("local") };
      }
      if (view.limits === undefined) return state;
      return { ...state, limits: limitChains.numbered(view, view.limits, former?.limits) };
    };
  }

  /** Approximate number of the service's elements here. */
  sizeOf(service: string): number {
    return elementsOf(this.state(service));
  }

  /** The service's state after the last update or restore. It changes during an update in pieces. */
  state(service: string): ServiceState {
    return this.#ports.get(service) ?? NOTHING;
  }

  /**
   * Whether the kernel has all elements of the service as desired. Also returns false if the service has chains or sets of its
   * own, because these are not compared.
   */
  isInKernel(service: string): boolean {
    let differs = false;
    const compare: Expansion = {
      ...NOTHING_EXPANDED,
      element: (set, key, data) => {
        const value = differs ? undefined : set.kernelValue(key);
        differs ||= value === undefined || (data !== undefined && Buffer.compare(value, data) !== 0);
      },
      endpoints: (set, key, base, endpoints) => {
        differs ||= !set.kernelHoldsList(key.service, base, this.#keys.endpoints(endpoints), endpoints.length);
      },
    };
    return this.state(service).every((port) => {
      if (ownObjects(port).length === 0) this.#expander.expand(port, compare);
      else differs = true;
      return !differs;
    });
  }

  /** Declares exactly an earlier `state` of the service, endpoint by endpoint. Skips ports that are the same in both. */
  restore(service: string, state: ServiceState): void {
    const before = this.state(service);
    const had = new Set(before);
    const has = new Set(state);
    const came = state.filter((one) => !had.has(one));
    const went = before.filter((one) => !has.has(one));
    this.#exchange(came, went);
    if (state.length === 0) this.#ports.delete(service);
    else this.#ports.set(service, state);
    this.#giveBack(came, went);
  }

  /**
   * The removed state had put its data into elements that other services, or other ports of the same service, still use.
   * Restores their data. It may visit every service, because it only runs after the kernel rejected something.
   */
  #giveBack(came: ServiceState, went: ServiceState): void {
    const keys = new Set<string>();
    const numbers = new Set<number>();
    const textOf = ({ service: key }: ServiceKey): string => key.join();
    for (const { view } of went) {
      numbers.add(view.port);
      if (view.nodePort !== 0) numbers.add(view.nodePort);
      forEachAddress(view, this.#keys, (key, roles) => {
        const isServed = this.#sets[roles.services].has(key.service) || this.#sets[roles.noEndpoints].has(key.service);
        if (isServed) keys.add(textOf(key));
      });
    }
    for (const { view } of came) forEachAddress(view, this.#keys, (key) => keys.delete(textOf(key)));
    if (keys.size === 0) return;
    for (const ports of this.#ports.values()) {
      for (const state of ports) {
        if (!numbers.has(state.view.port) && !numbers.has(state.view.nodePort)) continue;
        let has = false;
        forEachAddress(state.view, this.#keys, (key) => (has ||= keys.has(textOf(key))));
        if (!has) continue;
        this.#declareOwn(state);
        // Once more, and back: the elements get their data.
        this.#expander.expand(state, this.#adding);
        this.#expander.expand(state, this.#removing);
      }
    }
  }

  /** Replaces ports by others at once. Returns the approximate number of element operations. */
  #exchange(came: ServiceState, went: ServiceState): number {
    for (const state of came) this.#useOwn(state);
    this.#added = 0;
    for (const state of came) this.#expander.expand(state, this.#adding);
    // Remove after adding, so that common elements stay, and so do elements that another service has taken over meanwhile.
    for (const state of went) this.#expander.expand(state, this.#removing);
    for (const state of went) this.#releaseOwn(state);
    if (this.#onDemand.ensure()) this.#declare();
    // One deletion and one addition per changed element.
    return 2 * this.#added;
  }

  /** Throws RangeError if the port's objects cannot be expressed; then nothing has changed. */
  #useOwn(state: ServicePortState): void {
    for (const { name } of ownObjects(state)) this.#ownUses.set(name, (this.#ownUses.get(name) ?? 0) + 1);
    try {
      this.#declareOwn(state);
    } catch (error) {
      this.#releaseOwn(state);
      for (const other of this.state(state.view.service)) this.#declareOwn(other);
      throw error;
    }
  }

  #declareOwn(state: ServicePortState): void {
    for (const object of ownObjects(state)) object.declare(this.table, this.#options);
    const isNew = state.view.protocol === "SCTP" && !this.#onDemand.inUse.has("sctp");
    if (isNew && this.#onDemand.useSctp()) this.#declare();
  }

  #releaseOwn(state: ServicePortState): void {
    for (const { kind, name } of ownObjects(state)) {
      const uses = this.#ownUses.get(name)! - 1;
      if (uses > 0) this.#ownUses.set(name, uses);
      else {
        this.#ownUses.delete(name);
        if (kind === "chain") this.table.removeChain(name);
        else this.table.removeSet(name);
      }
    }
  }

  /**
   * VIPs and node ports that the kernel serves although no service asks for them, from an earlier run or from the table taken
   * over.
   */
  undesiredAddresses(): ServiceAddress[] {
    const { services, nodePorts, noEndpointServices, noEndpointNodePorts } = this.#sets;
    const found: ServiceAddress[] = [];
    for (const set of [services, nodePorts, noEndpointServices, noEndpointNodePorts]) {
      set.forEachUndesired((key) => {
        const address = unpackServiceKey(key, this.family);
        if (address !== undefined) found.push(address);
      });
    }
    return found;
  }

  /** Number of node ports (with protocol) that answer on loopback, because they have an endpoint. */
  get localhostNodePorts(): number {
    return this.#options.localhost === undefined ? 0 : this.#sets.nodePorts.size;
  }

  /** Counts of the service's ports, as of the last reading of the table's counters. */
  connections(service: string): ConnectionCounts {
    if (this.#counters === "off") return NOT_COUNTED;
    const ports = this.state(service);
    const find = finderIn(ports);
    const asked =
      <Counts>(counts: (state: ServicePortState, sets: ElementSets, keys: KeyPacker) => Counts) =>
      (port: PortName): Counts | undefined => {
        const state = ports[find(port)] as ServicePortState | undefined;
        return state && counts(state, this.#sets, this.#keys);
      };
    const ofEndpoints = this.#counters === "endpoint" ? asked(connectionsOfEndpoints) : NOT_COUNTED.ofEndpoints;
    return { ofPort: asked(connectionsOf), ofEndpoints };
  }

  /** Addresses that got connections between the last two readings of the table's counters, some of them more than once. */
  busyAddresses(): readonly ServiceAddress[] {
    return this.#counters === "off" ? [] : busyAddresses(this.family, this.#sets);
  }

  /** Declares chains that later changes need, while they are cheap for the kernel. Call it before each write. */
  updateSpares(): void {
    this.#draws.updateSpares();
  }

  /** Drops chains and rules that have been unused for `forMs`, by default UNUSED_MS. `now`: ms, monotonic. */
  collectUnused(now: number, forMs?: number): void {
    this.#draws.collectUnused(now, forMs);
    // Drop the rules that use the maps of limits before the maps.
    if (this.#onDemand.collectUnused(now, forMs)) this.#declare();
    this.#limits.collectUnused(now, forMs);
  }

  /**
   * Finds the service that each rejected operation was about. @param former states that services have left. A deletion may be
   * about their elements.
   */
  attribute(
    faults: readonly FaultyObject[],
    former: Iterable<readonly [service: string, state: ServiceState]> = [],
  ): Attribution[] {
    return attribute(faults, [...this.#ports, ...former], this.#expander, this.family);
  }

  #declare(): void {
    const nets = this.#sets.serviceCIDRs.nets();
    const serviceCIDR = nets.length === 1 && !nets[0].includes("-") ? { serviceCIDR: nets[0] } : {};
    declareSkeleton(this.table, { ...this.#options, ...serviceCIDR }, this.#onDemand.inUse);
  }

  #replaceNodePortIPs(): void {
    const desired = this.#options.nodePortAddresses === "all" ? [] : this.#options.nodePortAddresses;
    this.#sets.nodePortIPs.clear();
    for (const address of desired) this.#sets.nodePortIPs.put(this.#keys.address(address));
  }

  readonly #adding: Expansion = {
    element: (set, key, data) => {
      if (set.retain(key, data)) this.#added++;
    },
    endpoints: (set, key, base, endpoints) => {
      this.#added += set.retainList(key.service, base, this.#keys.endpoints(endpoints), endpoints.length);
    },
    list: (value) => this.#draws.use(value),
    limits: (limits) => this.#limits.use(limits),
  };

  /**
   * A packet that found the old list value may still draw an index, so its element goes after a grace period. A hairpin element
   * also stays for a while: a packet sent to an endpoint of this node checks at postrouting whether it came from there. Without
   * masquerading, it would be dropped, and its connection would fail.
   */
  readonly #removing: Expansion = {
    element: (set, key) => set.release(key, set.spec.deferUndesired === true),
    endpoints: (set, key, base, { length }) => set.releaseList(key.service, base, length, true),
    list: (value) => this.#draws.release(value),
    limits: (limits) => this.#limits.release(limits),
  };
}

/**
 * The wanted table of one family: service port views in, wanted elements and chains out. A change of one service touches
 * that service's elements alone; nothing here grows with the cluster.
 */
import type { Endpoint, IpFamily, ServicePortView } from "../model/types.js";
import type { Table } from "../table/index.js";
import type { ElementSet, FaultyObject, Rule, Statement } from "../table/types.js";
import { describeServiceKey, KeyPacker } from "./keys.js";
import { assignIndices, endpointId } from "./lists.js";
import { type DrawKind, drawChainName, LOCAL_INDEX_BASE, SetName } from "./names.js";
import { declareOwnObjects, type OwnObjects, ownNames } from "./own-chains.js";
import { type Expansion, ServiceExpander, type ServicePortState } from "./service.js";
import { declareSkeleton, type ElementSets, type LocalDetector, markForMasquerade } from "./skeleton.js";

export interface RulesetOptions {
  readonly masqueradeAll: boolean;
  /** 0..31. */
  readonly masqueradeBit: number;
  readonly detector: LocalDetector;
  /** This node's IP of the family, canonical; absent when it has none. */
  readonly nodeIP?: string;
  /** Addresses that node ports answer on; "all": every local one but loopback. */
  readonly nodePortAddresses: "all" | readonly string[];
}

interface PortRecord extends ServicePortState {
  readonly own: OwnObjects;
}

/** How long a draw chain that nothing goes to is kept: the count may come back with the next scaling. */
const UNUSED_CHAIN_MS = 60_000;

/** Counts who wants a thing that several want. */
class References {
  readonly #counts = new Map<string, number>();

  /** True when this is the first. */
  retain(key: string): boolean {
    const count = this.#counts.get(key) ?? 0;
    this.#counts.set(key, count + 1);
    return count === 0;
  }

  /** True when this was the last. */
  release(key: string): boolean {
    const count = this.#counts.get(key) ?? 0;
    if (count > 1) {
      this.#counts.set(key, count - 1);
      return false;
    }
    return this.#counts.delete(key);
  }

  has(key: string): boolean {
    return this.#counts.has(key);
  }
}

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
}

/** One of N draw chains as the constant rules know them. */
interface DrawChain {
  readonly name: string;
  readonly kind: DrawKind;
  readonly count: number;
  readonly nodePort: boolean;
}

export class FamilyRuleset {
  readonly family: IpFamily;
  readonly #table: Table;
  readonly #keys: KeyPacker;
  readonly #expander: ServiceExpander;
  readonly #sets: ElementSets;
  readonly #ports = new Map<string, readonly PortRecord[]>();
  readonly #shared = new References();
  readonly #drawUses = new References();
  readonly #drawChains = new Map<string, DrawChain>();
  /** Draw chains without a use, and since when (ms). */
  readonly #unused = new Map<string, number>();
  readonly #laterSets: ReadonlySet<ElementSet>;
  #options: RulesetOptions;
  #epoch = 0;

  constructor(table: Table, family: IpFamily, options: RulesetOptions) {
    this.family = family;
    this.#table = table;
    this.#keys = new KeyPacker(family);
    this.#options = options;
    this.#sets = this.#declare();
    this.#laterSets = new Set([this.#sets.serviceEndpoints, this.#sets.nodePortEndpoints]);
    this.#expander = new ServiceExpander(this.#sets, this.#keys);
    this.#replaceNodePortIPs();
  }

  /** Takes other options over; services that depend on them are declared again. */
  setOptions(options: RulesetOptions): void {
    this.#options = options;
    this.#declare();
    this.#replaceNodePortIPs();
    for (const record of this.#ports.values()) {
      for (const port of record) if (port.own.length > 0) this.#declareOwn(port);
    }
    for (const chain of this.#drawChains.values()) if (chain.kind === "masq") this.#declareDrawChain(chain);
  }

  /** Packets to these networks that no service has are dropped. */
  setServiceCIDRs(cidrs: readonly string[]): void {
    this.#sets.serviceCIDRs.replaceNets(cidrs);
  }

  /** Wants exactly these views of `service` ("namespace/name"); none: it is gone. */
  update(service: string, views: readonly ServicePortView[]): void {
    const before = this.#ports.get(service) ?? [];
    this.#epoch++;
    const after = views.map((view): PortRecord => {
      const state = this.#order(
        view,
        before.find((port) => port.view.id === view.id),
      );
      return { ...state, own: this.#declareOwn(state) };
    });
    for (const port of after) this.#expander.expand(port, this.#adding);
    for (const port of before) this.#expander.expand(port, this.#removing);
    this.#removeOwn(before, after);
    if (after.length === 0) this.#ports.delete(service);
    else this.#ports.set(service, after);
  }

  /** Services that have elements here. */
  services(): IterableIterator<string> {
    return this.#ports.keys();
  }

  /**
   * Drops draw chains that nothing has gone to for a while. Call it when there is time.
   * @param now milliseconds, monotonic. @returns true when something is to be written.
   */
  collectUnused(now: number): boolean {
    let removed = false;
    for (const [name, since] of this.#unused) {
      if (Number.isNaN(since)) this.#unused.set(name, now);
      else if (now - since >= UNUSED_CHAIN_MS && !this.#isMasqTarget(name)) {
        this.#unused.delete(name);
        this.#drawChains.delete(name);
        this.#table.removeChain(name);
        removed = true;
      }
    }
    return removed;
  }

  /** Whom a refused operation was about: "namespace/name" of a service where it can be told, and words for it. */
  attribute(fault: FaultyObject): { service?: string; what: string } {
    const why = `${fault.errno}${fault.text === undefined ? "" : ` (${fault.text})`}`;
    if (fault.set !== undefined && fault.key !== undefined) {
      const service = this.#ownerOf(fault.set, fault.key);
      const what = `element ${describeServiceKey(fault.key, this.family)} of ${fault.set}: ${why}`;
      return service === undefined ? { what } : { service, what };
    }
    const name = fault.chain ?? fault.set;
    if (name !== undefined) {
      for (const [service, ports] of this.#ports) {
        if (ports.some((port) => port.own.some((object) => object.name === name))) {
          return { service, what: `${fault.kind} ${name}: ${why}` };
        }
      }
    }
    return { what: `${fault.kind}${name === undefined ? "" : ` ${name}`}: ${why}` };
  }

  #declare(): ElementSets {
    return declareSkeleton(this.#table, {
      family: this.family,
      masqueradeAll: this.#options.masqueradeAll,
      masqueradeBit: this.#options.masqueradeBit,
      detector: this.#options.detector,
      nodePortsOnAllAddresses: this.#options.nodePortAddresses === "all",
    });
  }

  #replaceNodePortIPs(): void {
    const wanted = this.#options.nodePortAddresses === "all" ? [] : this.#options.nodePortAddresses;
    this.#sets.nodePortIPs.clear();
    for (const address of wanted) this.#sets.nodePortIPs.put(this.#keys.address(address));
  }

  #declareOwn(state: ServicePortState): OwnObjects {
    const { masqueradeBit, nodeIP } = this.#options;
    return declareOwnObjects(this.#table, state, {
      addressType: this.family === "ip" ? "ipv4_addr" : "ipv6_addr",
      masqueradeBit,
      ...(nodeIP === undefined ? {} : { nodeIP }),
    });
  }

  /** Removes what only the former ports of a service had for themselves. */
  #removeOwn(before: readonly PortRecord[], after: readonly PortRecord[]): void {
    const kept = new Set(after.flatMap((port) => port.own.map((object) => `${object.kind} ${object.name}`)));
    for (const port of before) {
      for (const object of port.own.toReversed()) {
        if (kept.has(`${object.kind} ${object.name}`)) continue;
        if (object.kind === "chain") this.#table.removeChain(object.name);
        else this.#table.removeSet(object.name);
      }
    }
  }

  /** Gives the endpoints their indices: those that they had, as the last state or else the kernel's table tells. */
  #order(view: ServicePortView, before: ServicePortState | undefined): ServicePortState {
    const previous = (kind: "cluster" | "local", wanted: readonly Endpoint[]): readonly (string | undefined)[] =>
      before === undefined ? this.#indicesInKernel(view, kind, wanted) : before[kind].map(endpointId);
    const cluster = assignIndices(previous("cluster", view.clusterEndpoints), view.clusterEndpoints);
    const local = assignIndices(previous("local", view.localEndpoints), view.localEndpoints);
    return { view, cluster, local };
  }

  /** After a restart: the order in which the kernel's table, perhaps written by an earlier run, holds a list. */
  #indicesInKernel(
    view: ServicePortView,
    kind: "cluster" | "local",
    wanted: readonly Endpoint[],
  ): (string | undefined)[] {
    if (wanted.length === 0 || view.affinitySeconds > 0) return [];
    const external = view.externalIPs[0] ?? view.loadBalancerIPs[0];
    const internal = (kind === "local") === view.internalPolicyLocal ? view.clusterIP : undefined;
    const vip = internal ?? external;
    const set = vip === undefined ? this.#sets.nodePortEndpoints : this.#sets.serviceEndpoints;
    const base = kind === "local" ? LOCAL_INDEX_BASE : 0;
    const keyAt = (index: number): Uint8Array =>
      (vip === undefined
        ? this.#keys.nodePort(view.protocol, view.nodePort)
        : this.#keys.vip(vip, view.protocol, view.port)
      ).at(base + index);
    if (set.kernelValue(keyAt(0)) === undefined) return [];
    const byData = new Map(
      wanted.map((endpoint) => [latin1(this.#keys.endpoint(endpoint.address, endpoint.port)), endpointId(endpoint)]),
    );
    return wanted.map((_, index) => {
      const data = set.kernelValue(keyAt(index));
      return data === undefined ? undefined : byData.get(latin1(data));
    });
  }

  readonly #adding: Expansion = {
    element: (set, key, data) => void set.put(key, data, this.#epoch),
    shared: (set, key) => {
      if (this.#shared.retain(`${set.spec.set} ${latin1(key)}`)) set.put(key);
    },
    goto: (chain) => this.#goto(chain),
    draw: (kind, count, nodePort, state) => {
      if (state.view.affinitySeconds > 0) return this.#goto(ownNames(state.view).draw[kind]);
      return this.#goto(this.#useDrawChain({ name: drawChainName(kind, count, nodePort), kind, count, nodePort }));
    },
    drop: () => KeyPacker.verdict(this.#table.verdictId({ verdict: "drop" })),
    firewall: (state) => this.#goto(ownNames(state.view).firewall),
  };

  /** Walks a former state: what it wanted, and the new one (of this epoch) does not, goes. */
  readonly #removing: Expansion = {
    element: (set, key) => {
      if (set.epochOf(key) === this.#epoch) return;
      // A packet under the old verdict may still draw this index, see deleteLater.
      if (this.#laterSets.has(set)) set.deleteLater(key);
      else set.delete(key);
    },
    shared: (set, key) => {
      if (this.#shared.release(`${set.spec.set} ${latin1(key)}`)) set.delete(key);
    },
    goto: () => NO_DATA,
    draw: (kind, count, nodePort, state) => {
      if (state.view.affinitySeconds === 0) this.#releaseDrawChain(drawChainName(kind, count, nodePort));
      return NO_DATA;
    },
    drop: () => NO_DATA,
    firewall: () => NO_DATA,
  };

  #goto(chain: string): Uint8Array {
    return KeyPacker.verdict(this.#table.verdictId({ verdict: "goto", chain }));
  }

  #useDrawChain(chain: DrawChain): string {
    if (this.#drawUses.retain(chain.name)) {
      this.#unused.delete(chain.name);
      if (!this.#drawChains.has(chain.name)) {
        this.#drawChains.set(chain.name, chain);
        this.#declareDrawChain(chain);
      }
    }
    return chain.name;
  }

  #releaseDrawChain(name: string): void {
    // The clock starts at the next collectUnused, which knows the time.
    if (this.#drawUses.release(name)) this.#unused.set(name, Number.NaN);
  }

  #declareDrawChain(chain: DrawChain): void {
    if (chain.kind === "masq") {
      const target = drawChainName("cluster", chain.count, chain.nodePort);
      this.#ensureDrawTarget({ name: target, kind: "cluster", count: chain.count, nodePort: chain.nodePort });
      const goto: Statement = { action: "verdict", verdict: { verdict: "goto", chain: target } };
      const mark = markForMasquerade(this.#options.masqueradeBit);
      this.#table.chain({ chain: chain.name, rules: [{ statements: [mark] }, { statements: [goto] }] });
      return;
    }
    const numgen = {
      field: "numgen",
      mode: "random",
      modulus: chain.count,
      ...(chain.kind === "local" ? { offset: LOCAL_INDEX_BASE } : {}),
    } as const;
    const rule: Rule = {
      statements: [
        {
          action: "dnat-map",
          key: chain.nodePort ? ["l4proto", "dport", numgen] : ["daddr", "l4proto", "dport", numgen],
          map: chain.nodePort ? SetName.nodePortEndpoints : SetName.serviceEndpoints,
          data: "address-port",
        },
      ],
    };
    this.#table.chain({ chain: chain.name, rules: [rule] });
  }

  /** A masq chain goes on to its cluster chain, which must then exist even when no element goes there directly. */
  #ensureDrawTarget(target: DrawChain): void {
    if (this.#drawChains.has(target.name)) return;
    this.#drawChains.set(target.name, target);
    this.#declareDrawChain(target);
    if (!this.#drawUses.has(target.name)) this.#unused.set(target.name, Number.NaN);
  }

  #isMasqTarget(name: string): boolean {
    const chain = this.#drawChains.get(name);
    return chain?.kind === "cluster" && this.#drawChains.has(drawChainName("masq", chain.count, chain.nodePort));
  }

  #ownerOf(set: string, key: Uint8Array): string | undefined {
    const wanted = latin1(key);
    for (const [service, ports] of this.#ports) {
      let found = false;
      const look: Expansion = {
        element: (candidate, bytes) => {
          if (candidate.spec.set === set && latin1(bytes) === wanted) found = true;
        },
        shared: (candidate, bytes) => {
          if (candidate.spec.set === set && latin1(bytes) === wanted) found = true;
        },
        goto: () => NO_DATA,
        draw: () => NO_DATA,
        drop: () => NO_DATA,
        firewall: () => NO_DATA,
      };
      for (const port of ports) this.#expander.expand(port, look);
      if (found) return service;
    }
    return undefined;
  }
}

const NO_DATA = new Uint8Array(0);

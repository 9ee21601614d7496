/**
 * Checks the leftovers of kube-proxy's IPVS mode once, and removes those no longer in use. New connections no longer use
 * IPVS, because they are translated in prerouting and output before IPVS sees them. (Its hooks are in input, and in
 * output after ours.) Its open connections continue there, and end when their virtual server is removed
 * (net.ipv4.vs.expire_nodest_conn, which kube-proxy sets).
 */
import { isLinkLocal, isLoopback } from "../../node/node-facts.js";
import type { IpFamily, Prefix } from "../../base/ip.js";
import type { Link, LinkAddress, LinkTable } from "../../netlink/link-table.js";
import type { Destination, IpvsTable, VirtualServer } from "../../netlink/ipvs-table.js";
import type { IpsetTable } from "../../netlink/ipset-table.js";
import {
  familyOfSet,
  IPVS_INTERFACE,
  isExcluded,
  nodePortKeys,
  nodePortSets,
  ownerOf,
  serverText,
} from "./ipvs-names.js";

/**
 * The kernel interface. `ipvs` and `ipset` are undefined if their modules are not loaded, because a request would load
 * them.
 */
export interface IpvsKernel {
  readonly ipvs: Pick<IpvsTable, "virtualServers" | "destinations" | "quiesce" | "remove"> | undefined;
  readonly ipset: Pick<IpsetTable, "names" | "ports" | "destroy"> | undefined;
  readonly links: Pick<
    LinkTable,
    "link" | "addressesOf" | "deleteAddress" | "deleteLink" | "sourceTo" | "setLocalSource" | "deleteLocalRoute"
  >;
  /** Canonical local addresses of this node's sockets. */
  readonly socketAddresses: () => Promise<ReadonlySet<string>>;
}

interface IpvsPassOptions {
  readonly kernel: IpvsKernel;
  /** Objects of other families stay. */
  readonly families: ReadonlySet<IpFamily>;
  /** `ipvs.excludeCIDRs`: objects in these stay. */
  readonly excluded: readonly Prefix[];
  /** "when-idle": keep servers with open connections. "now": cut those connections. */
  readonly remove: "when-idle" | "now";
}

/** Numbers of removed objects, for the log. */
export type Removed = Readonly<Record<"virtualServers" | "addresses" | "interfaces" | "ipsets", number>>;

/** The findings and changes of a pass. Counts cover only kube-proxy's objects, except in fields that say otherwise. */
export interface IpvsPass {
  readonly removed: Removed;
  /** Virtual servers that wait for their connections to end, and the number of these connections. */
  readonly waitingServers: number;
  readonly openConnections: number;
  /** Addresses that sockets of this node still use as local addresses. */
  readonly waitingAddresses: readonly string[];
  /** Sets that a rule or another set refers to. */
  readonly busySets: readonly string[];
  /** Virtual servers that stay: other programs', and those in excludeCIDRs. */
  readonly foreign: readonly string[];
  readonly excluded: readonly string[];
}

/** Whether nothing of kube-proxy remains to be removed. */
export function isDone({ waitingServers, waitingAddresses, busySets }: IpvsPass): boolean {
  return waitingServers === 0 && waitingAddresses.length === 0 && busySets.length === 0;
}

/** Whether a pass found anything of kube-proxy. */
export function foundAny(pass: IpvsPass): boolean {
  return removedAny(pass.removed) || !isDone(pass);
}

export function removedAny(removed: Removed): boolean {
  return Object.values(removed).some((count) => count > 0);
}

/**
 * Counts open connections to these destinations in IPVS: established ones, and those that are opening or closing.
 * Templates do not count: they outlive the last connection by the affinity time, hours, and send no
 * packet.
 */
export function connectionsOf(destinations: readonly Pick<Destination, "active" | "inactive">[]): number {
  return destinations.reduce((sum, { active, inactive }) => sum + active + inactive, 0);
}

/** Throws KernelError. Changes made before the error remain, and the next pass continues from there. */
export async function ipvsPass(options: IpvsPassOptions): Promise<IpvsPass> {
  return new Pass(options).run();
}

/** Documentation addresses (RFC 5737, RFC 3849), which the default route applies to. */
const ANY_OUTSIDE: Readonly<Record<IpFamily, string>> = { ip: "192.0.2.1", ip6: "2001:db8::1" };

class Pass {
  #link: Link | undefined;
  #addresses: readonly LinkAddress[] = [];
  #sets: readonly string[] = [];

  constructor(private readonly options: IpvsPassOptions) {}

  async run(): Promise<IpvsPass> {
    const { links, ipset } = this.options.kernel;
    const link = await links.link(IPVS_INTERFACE);
    // kube-proxy's interface is a dummy. kube-proxy also checks this before it deletes one.
    this.#link = link?.kind === "dummy" ? link : undefined;
    this.#addresses = this.#link === undefined ? [] : await links.addressesOf(this.#link.index);
    this.#sets = ((await ipset?.names()) ?? []).filter((name) => this.#serves(familyOfSet(name)));
    if (this.options.remove === "when-idle") await this.#useOwnSource();
    const servers = await this.#servers();
    const addresses = await this.#unbind(servers.stay);
    const interfaces = await this.#deleteInterface(addresses.left);
    const sets = await this.#destroySets(servers.waiting);
    const { removed: virtualServers, waiting, open, foreign, excluded } = servers;
    return {
      removed: { virtualServers, addresses: addresses.removed, interfaces, ipsets: sets.destroyed },
      waitingServers: waiting.length,
      openConnections: open,
      waitingAddresses: addresses.used,
      busySets: sets.busy,
      foreign,
      excluded,
    };
  }

  #serves(family: IpFamily | undefined): boolean {
    return family !== undefined && this.options.families.has(family);
  }

  /**
   * A local socket that connects to a local address also has that address as its source. It would break if the address
   * were removed, even if its connection is already ours. With this change, new sockets use the same source address as
   * on a node without kube-proxy's interface.
   */
  async #useOwnSource(): Promise<void> {
    const { links } = this.options.kernel;
    const all = new Set(this.#addresses.map(({ address }) => address));
    for (const family of this.options.families) {
      const bound = this.#addresses.filter((one) => one.family === family && !isLinkLocal(one.address));
      if (this.#link === undefined || bound.length === 0) continue;
      const source = await links.sourceTo(ANY_OUTSIDE[family]);
      if (source === undefined || isLoopback(source) || all.has(source)) continue;
      for (const { address } of bound) await links.setLocalSource(this.#link.index, address, source);
    }
  }

  async #servers() {
    const { kernel, excluded } = this.options;
    const marks = {
      bound: new Set(this.#addresses.map(({ address }) => address)),
      nodePorts: await this.#nodePorts(),
      excluded,
    };
    const by = { "kube-proxy": [], excluded: [], foreign: [] } as Record<ReturnType<typeof ownerOf>, VirtualServer[]>;
    for (const server of (await kernel.ipvs?.virtualServers()) ?? []) by[ownerOf(server, marks)].push(server);
    const waiting: VirtualServer[] = [];
    let removed = 0;
    let open = 0;
    for (const server of by["kube-proxy"].filter(({ family }) => this.#serves(family))) {
      const connections = await this.#removeServer(server);
      if (connections === undefined) removed++;
      else {
        waiting.push(server);
        open += connections;
      }
    }
    const otherFamilies = by["kube-proxy"].filter(({ family }) => !this.#serves(family));
    const stay = new Set([...waiting, ...otherFamilies, ...by.excluded, ...by.foreign].map(({ address }) => address));
    const texts = { foreign: this.#texts(by.foreign), excluded: this.#texts(by.excluded) };
    return { removed, waiting, open, stay, ...texts };
  }

  #texts(servers: readonly VirtualServer[]): string[] {
    // Node ports of other families have not been read, so the owners of their virtual servers are unknown.
    return servers.filter(({ family }) => this.#serves(family)).map(serverText);
  }

  /** Returns the number of connections that the server waits for. Returns undefined if it is gone. */
  async #removeServer(server: VirtualServer): Promise<number | undefined> {
    const ipvs = this.options.kernel.ipvs!;
    if (this.options.remove === "when-idle") {
      const destinations = await ipvs.destinations(server);
      const connections = connectionsOf(destinations);
      if (connections > 0) {
        // If a service is deleted meanwhile, its server must not accept new connections.
        for (const destination of destinations) if (destination.weight > 0) await ipvs.quiesce(server, destination);
        return connections;
      }
    }
    await ipvs.remove(server);
    return undefined;
  }

  async #nodePorts(): Promise<ReadonlySet<string>> {
    const keys: string[] = [];
    for (const family of this.options.families) {
      for (const [set, protocol] of nodePortSets(family)) {
        if (!this.#sets.includes(set)) continue;
        keys.push(...nodePortKeys(family, protocol, (await this.options.kernel.ipset?.ports(set)) ?? []));
      }
    }
    return new Set(keys);
  }

  /** @param stay addresses of virtual servers that are left. */
  async #unbind(stay: ReadonlySet<string>) {
    const { kernel, excluded, remove } = this.options;
    const free = this.#addresses.filter(
      ({ family, address }) => this.#serves(family) && !stay.has(address) && !isExcluded(address, excluded),
    );
    const bySockets = free.length > 0 && remove === "when-idle" ? await kernel.socketAddresses() : new Set<string>();
    const gone = new Set<LinkAddress>();
    for (const address of free) {
      if (bySockets.has(address.address)) continue;
      gone.add(address);
      // Routes with a changed source are not removed automatically.
      await kernel.links.deleteLocalRoute(this.#link!.index, address.address);
      await kernel.links.deleteAddress(this.#link!.index, address);
    }
    const left = this.#addresses.filter((one) => !gone.has(one) && !isLinkLocal(one.address));
    const used = free.map(({ address }) => address).filter((address) => bySockets.has(address));
    return { removed: gone.size, left, used };
  }

  /** Returns the number of deleted interfaces. */
  async #deleteInterface(left: readonly LinkAddress[]): Promise<number> {
    if (this.#link === undefined || left.length > 0) return 0;
    await this.options.kernel.links.deleteLink(this.#link.index);
    return 1;
  }

  /** The node-port sets identify kube-proxy's virtual servers, so they stay while a server of their family waits. */
  async #destroySets(waiting: readonly VirtualServer[]) {
    const families = new Set(waiting.map(({ family }) => family));
    const busy: string[] = [];
    let destroyed = 0;
    for (const set of this.#sets.filter((name) => !families.has(familyOfSet(name)!))) {
      if ((await this.options.kernel.ipset!.destroy(set)) === "destroyed") destroyed++;
      else busy.push(set);
    }
    return { destroyed, busy };
  }
}

/**
 * One look at what kube-proxy's IPVS mode left, and the removal of what is free to go. New connections no longer come by it:
 * they are translated in prerouting and output, before IPVS sees them (its hooks are in input, and in output behind ours). What
 * it has open goes on there, and ends when its virtual server goes (net.ipv4.vs.expire_nodest_conn, which kube-proxy sets).
 */
import type { IpFamily, Prefix } from "../../base/ip.js";
import type { Link, LinkAddress, LinkTable } from "../../netlink/links.js";
import type { Destination, IpvsTable, VirtualServer } from "../../netlink/ipvs.js";
import type { IpsetTable } from "../../netlink/ipset.js";
import {
  familyOfSet,
  IPVS_INTERFACE,
  isExcluded,
  nodePortKeys,
  nodePortSets,
  ownerOf,
  serverText,
} from "./ipvs-names.js";

/** The kernel's part. `ipvs` and `ipset` are undefined where the kernel has not loaded them: to ask would. */
export interface IpvsKernel {
  readonly ipvs: Pick<IpvsTable, "virtualServers" | "destinations" | "quiesce" | "remove"> | undefined;
  readonly ipset: Pick<IpsetTable, "names" | "ports" | "destroy"> | undefined;
  readonly links: Pick<
    LinkTable,
    "link" | "addressesOf" | "deleteAddress" | "deleteLink" | "sourceTo" | "setLocalSource" | "deleteLocalRoute"
  >;
  /** Addresses that sockets of this node have as their own, canonical. */
  readonly socketAddresses: () => Promise<ReadonlySet<string>>;
}

export interface IpvsPassOptions {
  readonly kernel: IpvsKernel;
  /** What is of other families stays. */
  readonly families: ReadonlySet<IpFamily>;
  /** `ipvs.excludeCIDRs`: what is inside stays. */
  readonly excluded: readonly Prefix[];
  /** "when-idle": what has open connections stays. "now": they are cut. */
  readonly remove: "when-idle" | "now";
}

/** What a look found and did. Counts are kube-proxy's own unless a field says otherwise. */
export interface IpvsPass {
  readonly removedServers: number;
  readonly removedAddresses: number;
  readonly removedInterface: boolean;
  readonly removedSets: number;
  /** Virtual servers that wait for their connections, and how many these are. */
  readonly waitingServers: number;
  readonly openConnections: number;
  /** Addresses that sockets of this node still have as their own. */
  readonly waitingAddresses: readonly string[];
  /** Sets that a rule or another set refers to. */
  readonly busySets: readonly string[];
  /** Virtual servers that stay: other programs', and those in excludeCIDRs. */
  readonly foreign: readonly string[];
  readonly excluded: readonly string[];
}

/** Whether there is anything of kube-proxy's that is to go yet. */
export function isDone({ waitingServers, waitingAddresses, busySets }: IpvsPass): boolean {
  return waitingServers === 0 && waitingAddresses.length === 0 && busySets.length === 0;
}

/** Whether a look found anything of kube-proxy's. */
export function foundAny(pass: IpvsPass): boolean {
  const { removedServers, removedAddresses, removedInterface, removedSets } = pass;
  return removedServers + removedAddresses + removedSets > 0 || removedInterface || !isDone(pass);
}

/**
 * Open connections that IPVS counts at these destinations: established ones, and those that open or close. Templates
 * (`persistent`) are none: they outlive the last connection by the service's affinity, hours, and send no packet.
 */
export function connectionsOf(destinations: readonly Pick<Destination, "active" | "inactive">[]): number {
  return destinations.reduce((sum, { active, inactive }) => sum + active + inactive, 0);
}

/** Throws KernelError; what was done until then is done, and the next look goes on. */
export async function ipvsPass(options: IpvsPassOptions): Promise<IpvsPass> {
  return new Pass(options).run();
}

/** Addresses of no one's (RFC 5737, RFC 3849), which the default route leads to. */
const ANY_OUTSIDE: Readonly<Record<IpFamily, string>> = { ip: "192.0.2.1", ip6: "2001:db8::1" };

const isLoopback = (address: string): boolean => address.startsWith("127.") || address === "::1";
/** fe80::/10: the kernel gives each interface one. */
const isLinkLocal = (address: string): boolean => /^fe[89ab]/.test(address);

class Pass {
  readonly #options: IpvsPassOptions;
  #link: Link | undefined;
  #addresses: readonly LinkAddress[] = [];
  #sets: readonly string[] = [];

  constructor(options: IpvsPassOptions) {
    this.#options = options;
  }

  async run(): Promise<IpvsPass> {
    const { links, ipset } = this.#options.kernel;
    const link = await links.link(IPVS_INTERFACE);
    // kube-proxy's is a dummy; it looks, too, before it deletes one.
    this.#link = link?.kind === "dummy" ? link : undefined;
    this.#addresses = this.#link === undefined ? [] : await links.addressesOf(this.#link.index);
    this.#sets = ((await ipset?.names()) ?? []).filter((name) => this.#serves(familyOfSet(name)));
    if (this.#options.remove === "when-idle") await this.#useOwnSource();
    const servers = await this.#servers();
    const addresses = await this.#unbind(servers.stay);
    const removedInterface = await this.#deleteInterface(addresses.left);
    const sets = await this.#destroySets(servers.waiting);
    const { removed, waiting, open, foreign, excluded } = servers;
    return {
      removedServers: removed,
      removedAddresses: addresses.removed,
      removedInterface,
      removedSets: sets.destroyed,
      waitingServers: waiting.length,
      openConnections: open,
      waitingAddresses: addresses.used,
      busySets: sets.busy,
      foreign,
      excluded,
    };
  }

  #serves(family: IpFamily | undefined): boolean {
    return family !== undefined && this.#options.families.has(family);
  }

  /**
   * A socket of this node that connects to a local address has that address for its own, too: it would break when the address
   * goes, also where the connection is ours by now. From here on new ones have the address that they have on a node without
   * kube-proxy's interface.
   */
  async #useOwnSource(): Promise<void> {
    const { links } = this.#options.kernel;
    const all = new Set(this.#addresses.map(({ address }) => address));
    for (const family of this.#options.families) {
      const bound = this.#addresses.filter((one) => one.family === family && !isLinkLocal(one.address));
      if (this.#link === undefined || bound.length === 0) continue;
      const source = await links.sourceTo(ANY_OUTSIDE[family]);
      if (source === undefined || isLoopback(source) || all.has(source)) continue;
      for (const { address } of bound) await links.setLocalSource(this.#link.index, address, source);
    }
  }

  async #servers() {
    const { kernel, excluded } = this.#options;
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
    // Node ports of another family have not been read, so its virtual servers cannot be told apart.
    return servers.filter(({ family }) => this.#serves(family)).map(serverText);
  }

  /** Undefined: it is gone; else how many connections it waits for. */
  async #removeServer(server: VirtualServer): Promise<number | undefined> {
    const ipvs = this.#options.kernel.ipvs!;
    if (this.#options.remove === "when-idle") {
      const destinations = await ipvs.destinations(server);
      const connections = connectionsOf(destinations);
      if (connections > 0) {
        // A service that is deleted meanwhile must not go on taking connections by this way.
        for (const destination of destinations) if (destination.weight > 0) await ipvs.quiesce(server, destination);
        return connections;
      }
    }
    await ipvs.remove(server);
    return undefined;
  }

  async #nodePorts(): Promise<ReadonlySet<string>> {
    const keys: string[] = [];
    for (const family of this.#options.families) {
      for (const [set, protocol] of nodePortSets(family)) {
        if (!this.#sets.includes(set)) continue;
        keys.push(...nodePortKeys(family, protocol, (await this.#options.kernel.ipset?.ports(set)) ?? []));
      }
    }
    return new Set(keys);
  }

  /** `stay`: addresses of virtual servers that are left. */
  async #unbind(stay: ReadonlySet<string>) {
    const { kernel, excluded, remove } = this.#options;
    const free = this.#addresses.filter(
      ({ family, address }) => this.#serves(family) && !stay.has(address) && !isExcluded(address, excluded),
    );
    const bySockets = free.length > 0 && remove === "when-idle" ? await kernel.socketAddresses() : new Set<string>();
    const gone = new Set<LinkAddress>();
    for (const address of free) {
      if (bySockets.has(address.address)) continue;
      gone.add(address);
      // Routes whose source was changed do not go by themselves.
      await kernel.links.deleteLocalRoute(this.#link!.index, address.address);
      await kernel.links.deleteAddress(this.#link!.index, address);
    }
    const left = this.#addresses.filter((one) => !gone.has(one) && !isLinkLocal(one.address));
    const used = free.map(({ address }) => address).filter((address) => bySockets.has(address));
    return { removed: gone.size, left, used };
  }

  async #deleteInterface(left: readonly LinkAddress[]): Promise<boolean> {
    if (this.#link === undefined || left.length > 0) return false;
    await this.#options.kernel.links.deleteLink(this.#link.index);
    return true;
  }

  /** The node-port sets tell which virtual servers are kube-proxy's, so they stay as long as one of their family waits. */
  async #destroySets(waiting: readonly VirtualServer[]) {
    const families = new Set(waiting.map(({ family }) => family));
    const busy: string[] = [];
    let destroyed = 0;
    for (const set of this.#sets.filter((name) => !families.has(familyOfSet(name)!))) {
      if ((await this.#options.kernel.ipset!.destroy(set)) === "destroyed") destroyed++;
      else busy.push(set);
    }
    return { destroyed, busy };
  }
}

/** Looks up how this node's routes forward a packet, from the facts that are visible from outside. */
import { formatAddress, type IpFamily } from "../../base/ip.js";
import { AddressType } from "../../netlink/constants.js";
import type { NetlinkExchange } from "../../netlink/netlink-message.js";
import type { NetworkInterfaces } from "../../netlink/network-interfaces.js";
import {
  type KernelLink,
  type KernelRoute,
  type RouteFrom,
  type RoutePolicies,
  RouteTable,
} from "../../netlink/route-table.js";
import type { Kernel } from "../../netlink/kernel.js";
import { IPTABLES } from "../../node/forwarding.js";
import { readSysctl } from "../../node/packet-settings.js";
import { addressTypeOf } from "./packet.js";

/** nf_tables, and what routes depend on. Without `connection`, routes are unknown. */
export interface RoutedKernel extends Kernel {
  readonly interfaces: Pick<NetworkInterfaces, "addresses">;
  readonly connection?: NetlinkExchange;
}

/** The node's current routes. Answers are cached. */
export class Routing {
  readonly #kernel: RoutedKernel;
  readonly #table: RouteTable | undefined;
  readonly #routes = new Map<string, Promise<KernelRoute | "none" | "unknown">>();
  readonly #policies = new Map<IpFamily, Promise<RoutePolicies>>();
  #local: Promise<ReadonlySet<string>> | undefined;
  #links: Promise<readonly KernelLink[]> | undefined;

  constructor(kernel: RoutedKernel) {
    this.#kernel = kernel;
    this.#table = kernel.connection && new RouteTable(kernel.connection);
  }

  /** Whether an interface of this node has the address. Rejects with KernelError. */
  async hasAddress(address: string): Promise<boolean> {
    this.#local ??= this.#readLocal();
    return addressTypeOf(address, await this.#local) === AddressType.local;
  }

  /** Returns RTN_*. Rejects with KernelError. */
  async addressType(address: string): Promise<number> {
    this.#local ??= this.#readLocal();
    const type = addressTypeOf(address, await this.#local);
    if (type !== AddressType.unicast) return type;
    const route = await this.route(address);
    if (typeof route === "string") return type;
    const special: readonly number[] = [AddressType.local, AddressType.broadcast, AddressType.anycast];
    return special.includes(route.type) ? route.type : type;
  }

  /** @param from facts that are known besides the destination. Never rejects. */
  route(address: string, from: RouteFrom = {}): Promise<KernelRoute | "none" | "unknown"> {
    const key = `${address} ${from.source} ${from.inInterface} ${from.mark}`;
    let route = this.#routes.get(key);
    if (route === undefined) {
      route = (this.#table?.to(address, from) ?? Promise.resolve("unknown" as const)).catch(() => "unknown" as const);
      this.#routes.set(key, route);
    }
    return route;
  }

  /** Returns undefined if there is no answer, or if more decides than is known. Never rejects. */
  async interfaceTo(family: IpFamily, address: string, from: RouteFrom = {}): Promise<string | undefined> {
    const route = await this.policyRoute(family, address, from);
    return typeof route === "string" ? undefined : route.interfaceName;
  }

  /** Like `route`, but unknown if rules for routes (`ip rule`) depend on more than is known. Never rejects. */
  async policyRoute(family: IpFamily, address: string, from: RouteFrom): Promise<KernelRoute | "none" | "unknown"> {
    let policies = this.#policies.get(family);
    if (policies === undefined) {
      policies = (this.#table?.policies(family) ?? Promise.resolve("more" as const)).catch(() => "more" as const);
      this.#policies.set(family, policies);
    }
    const on = await policies;
    if (on === "none") return this.route(address);
    const isOpen = on === "more" || from.source === undefined || (on === "mark" && from.mark === undefined);
    return isOpen ? "unknown" : this.route(address, from);
  }

  /** Returns none if they cannot be read. Never rejects. */
  links(): Promise<readonly KernelLink[]> {
    this.#links ??= (this.#table?.links() ?? Promise.resolve([])).catch(() => []);
    return this.#links;
  }

  /** Returns the ports of a bridge. Undefined if the device is no bridge, or if links cannot be read. Never rejects. */
  async portsOf(device: string): Promise<readonly string[] | undefined> {
    const links = await this.links();
    if (links.find(({ name }) => name === device)?.kind !== "bridge") return undefined;
    return links.filter(({ master }) => master === device).map(({ name }) => name);
  }

  /** Whether packets from the ports of bridges pass the hooks of IP there (br_netfilter). Never rejects. */
  async filtersBridges(family: IpFamily): Promise<boolean> {
    return (await readSysctl(`net.bridge.bridge-nf-call-${IPTABLES[family]}`)) === 1;
  }

  /** Returns the IPv4 addresses of a device; none if it has none, or some of link or host scope. Rejects with KernelError. */
  async addressesOf(device: string | undefined): Promise<readonly string[]> {
    const all = (await this.#kernel.interfaces.addresses()).filter(
      ({ family, interfaceName }) => family === "ip" && interfaceName === device,
    );
    const found = all.map(({ address }) => formatAddress(address));
    return found.some((address) => /^(?:127|169\.254)\./.test(address)) ? [] : found;
  }

  /** Whether packets from the device pass the hooks of IP as packets of a bridge. Never rejects. */
  async isBridged(family: IpFamily, device: string): Promise<boolean> {
    return (await this.portsOf(device)) !== undefined && this.filtersBridges(family);
  }

  async #readLocal(): Promise<ReadonlySet<string>> {
    return new Set((await this.#kernel.interfaces.addresses()).map(({ address }) => formatAddress(address)));
  }
}

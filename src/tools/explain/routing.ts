/** Looks up how this node's routes forward a packet, from the facts that are visible from outside. */
import { formatAddress, type IpFamily } from "../../base/ip.js";
import { AddressType } from "../../netlink/constants.js";
import type { NetlinkExchange } from "../../netlink/netlink-message.js";
import type { NetworkInterfaces } from "../../netlink/network-interfaces.js";
import { type KernelRoute, RouteTable } from "../../netlink/route-table.js";
import type { Kernel } from "../../netlink/kernel.js";
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
  readonly #policies = new Map<IpFamily, Promise<boolean>>();
  #local: Promise<ReadonlySet<string>> | undefined;

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

  /** Never rejects. */
  route(address: string): Promise<KernelRoute | "none" | "unknown"> {
    let route = this.#routes.get(address);
    if (route === undefined) {
      route = (this.#table?.to(address) ?? Promise.resolve("unknown" as const)).catch(() => "unknown" as const);
      this.#routes.set(address, route);
    }
    return route;
  }

  /** Returns undefined if there is no answer, or if more than the destination decides. Never rejects. */
  async interfaceTo(family: IpFamily, address: string): Promise<string | undefined> {
    let policies = this.#policies.get(family);
    if (policies === undefined) {
      policies = (this.#table?.hasPolicies(family) ?? Promise.resolve(true)).catch(() => true);
      this.#policies.set(family, policies);
    }
    if (await policies) return undefined;
    const route = await this.route(address);
    return typeof route === "string" ? undefined : route.interfaceName;
  }

  async #readLocal(): Promise<ReadonlySet<string>> {
    return new Set((await this.#kernel.interfaces.addresses()).map(({ address }) => formatAddress(address)));
  }
}

/** Looks up how this node's routes forward a packet, from the facts that are visible from outside. */
import { familyOf, formatAddress, type IpFamily } from "../../../base/ip.js";
import { AddressType } from "../../../nft/kernel/constants.js";
import type { NetlinkExchange } from "../../../nft/kernel/netlink-message.js";
import type { NetworkInterfaces } from "../../../nft/kernel/network-interfaces.js";
import { type KernelLink, type KernelRoute, type RouteFrom, RouteTable } from "../../../netlink/route-table.js";
import type { Kernel } from "../../../nft/kernel/kernel.js";
import { IPTABLES } from "../../../node/forwarding.js";
import { isLoopback } from "../../../node/node-facts.js";
import { readSysctl } from "../../../node/packet-settings.js";
import type { Routes } from "../machine/machine-world.js";
import { bytesOf } from "../machine/packet-state.js";
import { Kept } from "./kept.js";

/** nf_tables, and what routes depend on. Without `connection`, routes are unknown. */
export interface RoutedKernel extends Kernel {
  readonly interfaces: Pick<NetworkInterfaces, "addresses">;
  readonly connection?: NetlinkExchange;
}

/** The node's current routes. Answers are cached. */
export class Routing implements Routes {
  readonly #table: RouteTable | undefined;
  readonly #kept = new Kept();

  constructor(private readonly kernel: RoutedKernel) {
    this.#table = kernel.connection && new RouteTable(kernel.connection);
  }

  /** Whether an interface of this node has the address. Rejects with KernelError. */
  async hasAddress(address: string): Promise<boolean> {
    return addressTypeOf(address, await this.#local()) === AddressType.local;
  }

  async addressType(address: string): Promise<number> {
    const type = addressTypeOf(address, await this.#local());
    if (type !== AddressType.unicast) return type;
    const route = await this.route(address);
    if (typeof route === "string") return type;
    const special: readonly number[] = [AddressType.local, AddressType.broadcast, AddressType.anycast];
    return special.includes(route.type) ? route.type : type;
  }

  /** @param from facts that are known besides the destination. Never rejects. */
  route(address: string, from: RouteFrom = {}): Promise<KernelRoute | "none" | "unknown"> {
    return this.#ask<KernelRoute | "none" | "unknown">(
      "unknown",
      `${address} ${from.source} ${from.inInterface} ${from.mark}`,
      (table) => table.to(address, from),
    );
  }

  async interfaceTo(address: string): Promise<string | undefined> {
    const route = await this.policyRoute(address, {});
    return typeof route === "string" ? undefined : route.interfaceName;
  }

  async policyRoute(address: string, from: RouteFrom): Promise<KernelRoute | "none" | "unknown"> {
    const family = familyOf(address);
    const on = await this.#ask("more", family, (table) => table.policies(family));
    if (on === "none") return this.route(address);
    const isOpen = on === "more" || from.source === undefined || (on === "mark" && from.mark === undefined);
    return isOpen ? "unknown" : this.route(address, from);
  }

  /** Returns none if they cannot be read. Never rejects. */
  links(): Promise<readonly KernelLink[]> {
    return this.#ask([], "links", (table) => table.links());
  }

  async linkNamed(name: string | undefined): Promise<KernelLink | undefined> {
    return (await this.links()).find((link) => link.name === name);
  }

  async portsOf(device: string | undefined): Promise<readonly string[] | undefined> {
    if ((await this.linkNamed(device))?.kind !== "bridge") return undefined;
    return (await this.links()).filter(({ master }) => master === device).map(({ name }) => name);
  }

  async addressesOf(device: string | undefined): Promise<readonly string[]> {
    const all = (await this.kernel.interfaces.addresses()).filter(
      ({ family, interfaceName }) => family === "ip" && interfaceName === device,
    );
    const found = all.map(({ address }) => formatAddress(address));
    return found.some((address) => /^(?:127|169\.254)\./.test(address)) ? [] : found;
  }

  async isBridged(family: IpFamily, device: string | undefined): Promise<boolean> {
    if ((await this.portsOf(device)) === undefined) return false;
    return (await readSysctl(`net.bridge.bridge-nf-call-${IPTABLES[family]}`)) === 1;
  }

  #local(): Promise<ReadonlySet<string>> {
    return this.#kept.get("local", async () => {
      return new Set((await this.kernel.interfaces.addresses()).map(({ address }) => formatAddress(address)));
    });
  }

  /** @param otherwise the answer if the kernel gives none. */
  #ask<T>(otherwise: T, key: string, ask: (table: RouteTable) => Promise<T>): Promise<T> {
    return this.#kept.get(key, async () => {
      return this.#table === undefined ? otherwise : ask(this.#table).catch(() => otherwise);
    });
  }
}

/**
 * Returns the routing type of a canonical address (RTN_*), as in `fib … type`, judged only by this node's addresses.
 */
function addressTypeOf(address: string, local: ReadonlySet<string>): number {
  if (local.has(address) || isLoopback(address)) return AddressType.local;
  if (address === "255.255.255.255") return AddressType.broadcast;
  const first = bytesOf(address)[0] ?? 0;
  const multicast = address.includes(":") ? first === 0xff : first >= 224 && first < 240;
  return multicast ? AddressType.multicast : AddressType.unicast;
}

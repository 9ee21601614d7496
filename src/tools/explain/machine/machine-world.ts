/** The facts that rules depend on besides the packet, and the results of a rule. */
import type { IpFamily } from "../../../base/ip.js";
import type { RuleInfo, SetDump, TableRef, Verdict } from "../../../nft/kernel/kernel.js";
import type { KernelLink, KernelRoute, RouteFrom } from "../../../netlink/route-table.js";
import type { Ternary } from "./bits.js";
import type { Branch } from "./branch.js";
import type { Elements, Found } from "./elements.js";
import type { HookedChain } from "./hooks.js";

/** The ruleset. Methods reject with KernelError. */
export interface Rules {
  /** All base chains. */
  hooked(): Promise<readonly HookedChain[]>;
  rules(ref: TableRef, chain: string): Promise<readonly RuleInfo[]>;
  /** Returns undefined if there is no such set. */
  set(ref: TableRef, name: string): Promise<SetDump | undefined>;
  elements(ref: TableRef, set: SetDump): Promise<Elements>;
}

/** Routes, addresses and devices of this node. */
export interface Routes {
  /** Routing type of an address (RTN_*). Rejects with KernelError. */
  addressType(address: string): Promise<number>;
  /** Unknown if rules for routes (`ip rule`) depend on more than is known. Never rejects. */
  policyRoute(address: string, from: RouteFrom): Promise<KernelRoute | "none" | "unknown">;
  /** The interface through which packets to an address leave. Undefined if it is unknown or there is no route. Never rejects. */
  interfaceTo(address: string): Promise<string | undefined>;
  /**
   * The IPv4 addresses of an interface, all of which other hosts may use. Empty if it has others, or none. Rejects with
   * KernelError.
   */
  addressesOf(device: string | undefined): Promise<readonly string[]>;
  /** The interface of this name. Undefined if there is none, or it cannot be read. Never rejects. */
  linkNamed(name: string): Promise<KernelLink | undefined>;
  /** The ports of a bridge. Undefined if the device is no bridge, or unknown. Never rejects. */
  portsOf(device: string | undefined): Promise<readonly string[] | undefined>;
  /** Whether packets from the interface pass the hooks of IP as packets of a bridge (br_netfilter). Never rejects. */
  isBridged(family: IpFamily, device: string | undefined): Promise<boolean>;
}

export interface World {
  readonly rules: Rules;
  readonly routes: Routes;
  /** Whether the table is this program's, so that we know what its rules draw, count and limit. */
  isOurs(ref: TableRef): boolean;
  /** Whether a set of ipset has the address. Undefined if unknown. */
  isInIpSet(set: number, address: Uint8Array): Promise<Ternary>;
  /** "tcp dport 80 drop (handle 3)". */
  ruleText(rule: RuleInfo): string;
  /** "services: 10.96.0.10 . tcp . 80 → goto served". */
  elementText(set: SetDump, key: Uint8Array, found: Found): string;
  /** The number that our `numgen` returns, counted from 0. */
  readonly draw: number;
  /** Receives the count of possible numbers if one is drawn. */
  onDraw(count: number): void;
}

/** "reject" and "unknown" end the packet's path, as a verdict does. */
export type Effect = "next" | "break" | "reject" | "unknown" | Verdict;

/** A branch in which a rule ended. */
export interface RuleEnd {
  readonly branch: Branch;
  readonly effect: Effect;
}

/** The context in which a rule runs, and its result. */
import type { RuleInfo, TableRef, Verdict } from "../../netlink/kernel.js";
import type { Ternary } from "./bits.js";
import type { Branch } from "./branch.js";
import { ruleText } from "./rule-text.js";
import type { Ruleset } from "./ruleset.js";

export interface World {
  readonly ruleset: Ruleset;
  /** Whether the table is this program's, so that we know what its rules draw, count and limit. */
  isOurs(ref: TableRef): boolean;
  /** Routing type of an address (RTN_*). */
  addressType(address: string): Promise<number>;
  /** The interface through which packets to an address leave. Undefined if it is unknown or there is no route. */
  interfaceTo(address: string): Promise<string | undefined>;
  /** The IPv4 addresses of an interface, all of which other hosts may use. Empty if it is unknown whether there are others. */
  addressesOf(device: string | undefined): Promise<readonly string[]>;
  /** Whether a set of ipset has the address. Undefined if unknown. */
  isInIpSet(set: number, address: Uint8Array): Promise<Ternary>;
  /** Whether packets from the interface pass the hooks of IP as packets of a bridge (br_netfilter). */
  isBridged(device: string): Promise<boolean>;
  /** The number that our `numgen` returns, counted from 0. */
  readonly draw: number;
  /** Receives the count of possible numbers if one is drawn. */
  onDraw(count: number): void;
  /** Whether to record steps. */
  readonly traced: boolean;
}

/** The position of a rule. */
export interface Place {
  readonly hook: string;
  readonly ref: TableRef;
  readonly chain: string;
  readonly rule: RuleInfo;
}

/** "reject" and "unknown" end the packet's path, as a verdict does. */
export type Effect = "next" | "break" | "reject" | "unknown" | Verdict;

/** A branch in which a rule ended. */
export interface RuleEnd {
  readonly branch: Branch;
  readonly effect: Effect;
}

/** "inet a f: tcp dport 80 drop (handle 3)". */
export function whereOf({ ref, chain, rule }: Place): string {
  return `${ref.family} ${ref.table} ${chain}: ${ruleText(rule)}`;
}

/** What one rule is run with, and what comes of it. */
import type { RuleInfo, TableRef, Verdict } from "../../netlink/kernel.js";
import type { Branch } from "./branch.js";
import { ruleText } from "./rule-text.js";
import type { Ruleset } from "./ruleset.js";

export interface World {
  readonly ruleset: Ruleset;
  /** Whether the table's rules are this program's: what they draw, count and limit is its own. */
  isOurs(ref: TableRef): boolean;
  /** Routing type of an address (RTN_*). */
  addressType(address: string): Promise<number>;
  /** Returns the interface through which packets to an address leave, or undefined if it is not known or there is no route. */
  interfaceTo(address: string): Promise<string | undefined>;
  /** Which of the numbers that our `numgen` may give it gives, counted from 0. */
  readonly draw: number;
  /** Told how many numbers there are, where one is drawn. */
  onDraw(count: number): void;
  /** Whether steps are wanted. */
  readonly traced: boolean;
}

/** Where a rule is. */
export interface Place {
  readonly hook: string;
  readonly ref: TableRef;
  readonly chain: string;
  readonly rule: RuleInfo;
}

/** "reject" and "unknown" end the packet's way as a verdict does. */
export type Effect = "next" | "break" | "reject" | "unknown" | Verdict;

/** A way on which a rule came to an end. */
export interface RuleEnd {
  readonly branch: Branch;
  readonly effect: Effect;
}

/** "inet a f: tcp dport 80 drop (handle 3)". */
export function whereOf({ ref, chain, rule }: Place): string {
  return `${ref.family} ${ref.table} ${chain}: ${ruleText(rule)}`;
}

import type { BaseChain, SetInfo } from "../../kernel/types.js";
import type { TableFacts } from "../quirks/ownership.js";
import type { ComparableRule } from "../rules/comparable.js";

/** What the kernel is known to hold of our table. */
export interface KernelState {
  /** Absent: there is no such table, or none of use. */
  table: TableFacts | undefined;
  /** There is one that has to go before ours can be made. */
  inTheWay: boolean;
  readonly chains: Map<string, KernelChain>;
  /** Named sets alone: anonymous ones are part of their rules. */
  readonly sets: Map<string, SetInfo>;
  /** Sets with elements that a specification cannot express: they are created anew. */
  readonly unusable: Set<string>;
}

export interface KernelChain {
  base: BaseChain | undefined;
  readonly comment: string | undefined;
  rules: KernelRule[];
}

export interface KernelRule extends ComparableRule {
  /** Absent for a rule that was added since the chain was read. */
  readonly handle?: bigint;
}

/** Of a table that is not there. */
export function emptyState(): KernelState {
  return { table: undefined, inTheWay: false, chains: new Map(), sets: new Map(), unusable: new Set() };
}

/** Whether a chain of the table has a hook. */
export function packetsComeBy({ chains }: KernelState): boolean {
  return [...chains.values()].some(({ base }) => base !== undefined);
}

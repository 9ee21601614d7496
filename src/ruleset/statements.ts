/** Statements used by chains in several files. */
import type { DataSource, Rule, Statement } from "../nft/engine-exports.js";

export const rule = (...statements: Statement[]): Rule => ({ statements });
export const jump = (chain: string): Statement => ({ action: "verdict", verdict: `jump ${chain}` });
export const goto = (chain: string): Statement => ({ action: "verdict", verdict: `goto ${chain}` });
export const drop: Statement = { action: "verdict", verdict: "drop" };
export const reject: Statement = { action: "reject" };
export const reset: Statement = { action: "reject", with: "tcp-reset" };

/** Sets the packet's priority, to a constant or to what a map holds. Without an entry in the map, the rule ends. */
export function setPriority(value: DataSource): Statement {
  return { action: "set", field: "meta priority", value };
}

/** Resets the packet's priority, which had contained a list value (list-values.ts). */
export const resetPriority: Statement = setPriority(0);

/** Sets the masquerade bit on the packet; postrouting clears it and masquerades. */
export function markForMasquerade(bit: number): Statement {
  const value = (1 << bit) >>> 0;
  return { action: "set", field: "meta mark", value: { from: "meta mark", mask: ~value >>> 0, xor: value } };
}

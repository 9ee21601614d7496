/** Statements that chains in several files have in common. */
import type { Rule, Statement } from "../table/table-exports.js";

export const rule = (...statements: Statement[]): Rule => ({ statements });
export const jump = (chain: string): Statement => ({ action: "verdict", verdict: { verdict: "jump", chain } });
export const goto = (chain: string): Statement => ({ action: "verdict", verdict: { verdict: "goto", chain } });
export const drop: Statement = { action: "verdict", verdict: { verdict: "drop" } };
export const reject: Statement = { action: "reject" };
export const reset: Statement = { action: "reject", with: "tcp-reset" };

/** A list value travels as the packet's priority (list-values.ts): from here on it is none again. */
export const resetPriority: Statement = { action: "set-priority", value: 0 };

/** Sets the masquerade bit on the packet; postrouting clears it and masquerades. */
export function markForMasquerade(bit: number): Statement {
  const value = (1 << bit) >>> 0;
  return { action: "set-mark", mask: value, value };
}

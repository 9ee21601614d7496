/**
 * Statements as kernel expressions, the same that nft makes of the same text (so that every nft prints them well).
 * Pure. Values go through registers from word 0 on, each statement by itself; protocol guards are added once
 * a rule, where the table's family leaves them open.
 */
import { lowerAction } from "./lower-actions.js";
import { nfprotoOf, type LowerContext, type LoweredRule, type LowerOptions } from "./lower-context.js";
import { lowerMatch } from "./lower-matches.js";
import { checkComment } from "./text.js";
import type { Rule, Statement } from "./types.js";

export type { AnonymousSet, LoweredRule, LowerOptions } from "./lower-context.js";
export { ANONYMOUS_NAME } from "./lower-context.js";

/** Throws RangeError for a statement that means nothing (no networks, a port of 70000, an address of the other family). */
export function lowerRule(rule: Rule, options: LowerOptions): LoweredRule {
  checkComment("rule", rule.comment);
  const nfproto = nfprotoOf(options.family);
  const context: LowerContext = { ...options, exprs: [], anonymous: [], ...(nfproto === undefined ? {} : { nfproto }) };
  for (const statement of rule.statements) lowerStatement(context, statement);
  return { exprs: context.exprs, anonymous: context.anonymous };
}

function lowerStatement(context: LowerContext, statement: Statement): void {
  if ("match" in statement) lowerMatch(context, statement);
  else lowerAction(context, statement);
}

/**
 * Rules as kernel expressions, the same that nft makes of the same text (so that every nft prints them well), and as that text. Pure.
 * Values go through registers from word 0 on, each statement by itself; protocol guards are added once
 * a rule, where the table's family leaves them open.
 */
import { ACTIONS } from "./actions.js";
import { type LowerContext, type LoweredRule, type StatementKind, type StatementOptions, versionOf } from "./fields.js";
import { MATCHES } from "./matches.js";
import { checkComment } from "./text.js";
import type { Rule, Statement } from "./types.js";

function kindOf(statement: Statement): StatementKind<Statement> {
  return "match" in statement ? MATCHES[statement.match] : ACTIONS[statement.action];
}

/** Throws RangeError for a statement that means nothing (no networks, a port of 70000, an address of the other family). */
export function lowerRule(rule: Rule, options: StatementOptions): LoweredRule {
  checkComment("rule", rule.comment);
  const version = versionOf(options.family);
  const context: LowerContext = { ...options, anonymous: [], ...(version === undefined ? {} : { version }) };
  const exprs = rule.statements.flatMap((statement) => kindOf(statement).lower(statement, context));
  return { exprs, anonymous: context.anonymous };
}

export function printRule(rule: Rule, options: StatementOptions): string {
  const words = rule.statements.map((statement) => kindOf(statement).print(statement, options));
  if (rule.comment !== undefined) words.push(`comment "${rule.comment}"`);
  return words.filter((word) => word !== "").join(" ");
}

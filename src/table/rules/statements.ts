/**
 * Rules as kernel expressions, the same that nft makes of the same text (so that every nft prints them well), and as that text. Pure.
 * Values go through registers from word 0 on, each statement by itself; protocol guards are added once
 * a rule, where the table's family leaves them open.
 */
import { ACTIONS } from "./actions.js";
import { neverMatches } from "./families.js";
import {
  type LowerContext,
  type LoweredRule,
  type StatementKind,
  type StatementOptions,
  versionOf,
} from "./lowered.js";
import { MATCHES } from "./matches.js";
import { checkComment } from "./names-and-comments.js";
import type { Rule, Statement } from "./rule.js";

/** Throws RangeError for a statement that means nothing (no networks, a port of 70000, an address of the other family). */
export function lowerRule(rule: Rule, options: StatementOptions): LoweredRule {
  checkComment("rule", rule.comment);
  const version = versionOf(options.family);
  const context: LowerContext = { ...options, anonymous: [], version, l4proto: undefined };
  const parts = rule.statements.map((statement) => {
    const never = neverMatches(options.family, statement);
    if (never !== undefined) throw new RangeError(`${never} never matches in a table of family ${options.family}`);
    const kind = "match" in statement ? MATCHES[statement.match] : ACTIONS[statement.action];
    return (kind as StatementKind<Statement>)(statement, context);
  });
  const words = parts.map(({ text }) => text);
  if (rule.comment !== undefined) words.push(`comment "${rule.comment}"`);
  const text = words.filter((word) => word !== "").join(" ");
  return { exprs: parts.flatMap(({ exprs }) => exprs), text, anonymous: context.anonymous };
}

/** Throws as `lowerRule` does, but for an address whose family nothing tells. */
export function printRule(rule: Rule, options: StatementOptions): string {
  return lowerRule(rule, { ...options, assumed: 4 }).text;
}

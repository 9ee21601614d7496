/**
 * Turns rules into kernel expressions, and into nft's text. The expressions are the same that nft generates from that text, so every nft prints them
 * well. Pure. Each statement uses registers from word 0 on. Protocol guards are added once per rule, if the table's family does not imply them.
 */
import { ACTIONS } from "./actions.js";
import { neverMatches } from "./hooks-and-priorities.js";
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

/** Throws RangeError for a meaningless statement (no networks, a port of 70000, an address of the other family). */
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

/** Throws as `lowerRule` does, but accepts an address field whose family is unknown. */
export function printRule(rule: Rule, options: StatementOptions): string {
  return lowerRule(rule, { ...options, assumed: 4 }).text;
}

/**
 * Rules as kernel expressions, the same that nft makes of the same text (so that every nft prints them well), and as that text. Pure.
 * Values go through registers from word 0 on, each statement by itself; protocol guards are added once
 * a rule, where the table's family leaves them open.
 */
import { NfProto } from "../../kernel/constants.js";
import { ACTIONS } from "./actions.js";
import type { LowerContext, LoweredRule, StatementKind, StatementOptions } from "./fields.js";
import { MATCHES } from "./matches.js";
import { checkComment } from "./text.js";
import type { Rule, Statement } from "./types.js";

function kindOf(statement: Statement): StatementKind<Statement> {
  return "match" in statement ? MATCHES[statement.match] : ACTIONS[statement.action];
}

/** Throws RangeError for a statement that means nothing (no networks, a port of 70000, an address of the other family). */
export function lowerRule(rule: Rule, options: StatementOptions): LoweredRule {
  checkComment("rule", rule.comment);
  const { family } = options;
  const nfproto = family === "ip" ? { nfproto: NfProto.ip } : family === "ip6" ? { nfproto: NfProto.ip6 } : {};
  const context: LowerContext = { ...options, exprs: [], anonymous: [], ...nfproto };
  for (const statement of rule.statements) kindOf(statement).lower(context, statement);
  return { exprs: context.exprs, anonymous: context.anonymous };
}

export function printRule(rule: Rule, options: StatementOptions): string {
  const words = rule.statements.map((statement) => kindOf(statement).print(statement, options));
  if (rule.comment !== undefined) words.push(`comment "${rule.comment}"`);
  return words.filter((word) => word !== "").join(" ");
}

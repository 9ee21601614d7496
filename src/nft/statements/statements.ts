/**
 * Turns rules into kernel expressions, and into nft's text. The expressions are the same that nft generates from that text, so every nft prints them
 * well. Pure. Each statement uses registers from word 0 on. Conditions that a field needs are added once per rule.
 */
import { ACTIONS } from "./actions.js";
import { factsOf } from "../lowering/dependencies.js";
import { neverMatches } from "../language/never-matches.js";
import {
  joined,
  type Lowered,
  type LowerContext,
  type LoweredRule,
  type StatementKind,
  type StatementOptions,
} from "../lowering/lowered.js";
import { fieldMatch } from "./matches.js";
import { checkComment } from "../bytes/names-and-comments.js";
import type { Rule, Statement } from "../language/rule.js";
import { inNetworkOrder } from "../language/intervals.js";
import { ruleText } from "../printing/rule-text.js";
import { setInfo } from "../language/schema.js";

/** Throws RangeError for a meaningless statement (no networks, a port of 70000, an address of the other family). */
export function lowerRule(rule: Rule, options: StatementOptions): LoweredRule {
  checkComment("rule", rule.comment);
  const context: LowerContext = { ...options, anonymous: [], pieces: [], facts: factsOf(options.family) };
  let isUnprintable = false;
  let last: string | undefined;
  for (const [index, statement] of rule.statements.entries()) {
    if (last !== undefined)
      throw new RangeError(`statement ${index}: it has no effect after ${last}, which ends the rule`);
    last = endOfRule(statement);
    const lowered = lowerStatement(statement, index, context);
    context.pieces.push({ ...lowered, isAction: "action" in statement });
    isUnprintable ||= lowered.isUnprintable === true;
  }
  return { exprs: joined(context.pieces), anonymous: context.anonymous, isUnprintable };
}

const ENDS: ReadonlySet<string> = new Set(["reject", "queue", "masquerade", "redirect", "snat", "dnat", "fwd"]);

/** Describes a statement after which no other has an effect. Undefined if others may follow. */
function endOfRule(statement: Statement): string | undefined {
  if (!("action" in statement)) return undefined;
  const { action } = statement;
  if (action === "verdict") return statement.verdict === "continue" ? undefined : statement.verdict;
  return ENDS.has(action) ? action : undefined;
}

function lowerStatement(statement: Statement, index: number, context: LowerContext): Lowered {
  const never = neverMatches(context.family, statement);
  if (never !== undefined) throw new RangeError(`${never} never matches in a table of family ${context.family}`);
  try {
    if ("action" in statement) return (ACTIONS[statement.action] as StatementKind<Statement>)(statement, context);
    return fieldMatch(statement, context);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new RangeError(`statement ${index}: ${error.message}`, { cause: error });
  }
}

/** Throws as `lowerRule` does, but accepts an address field whose family is unknown. */
export function printRule(rule: Rule, options: StatementOptions): string {
  const { exprs, anonymous, isUnprintable } = lowerRule(rule, { ...options, assumed: 4, isForText: true });
  if (isUnprintable === true)
    throw new RangeError("a raw statement without text cannot be printed: give it the text that nft reads");
  const setSpec = options.setSpec ?? (() => undefined);
  const text = ruleText(inNetworkOrder(exprs, setSpec), {
    family: options.family,
    isPortable: true,
    set: (name, id) => {
      if (id !== undefined) return anonymous[id - 1];
      const spec = setSpec(name);
      return spec && { info: setInfo(spec, undefined) };
    },
  });
  return rule.comment === undefined ? text : `${text} comment "${rule.comment}"`.trim();
}

/**
 * Checks rules, and turns them into kernel expressions and into nft's text. The expressions are the same that nft generates from that text, so every nft
 * prints them well. Pure. Each statement uses registers from word 0 on. Conditions that a field needs are added once per rule.
 */
import { isObject, optional, record, type Shape, value, variants } from "../../base/shape.js";
import { check, FieldError, within } from "../language/fields/field-error.js";
import { inNetworkOrder } from "../language/intervals.js";
import { setInfo } from "../language/schema.js";
import { comment } from "../language/vocabulary.js";
import { factsOf } from "../lowering/dependencies.js";
import {
  joined,
  type Lowered,
  type LowerContext,
  type LoweredRule,
  type StatementOptions,
} from "../lowering/lowered.js";
import { ruleText } from "../printing/rule-text.js";
import { ACTIONS, kindOf } from "./actions.js";
import { checkPlace } from "./kind.js";
import { FIELD_MATCH, lowerCondition } from "./conditions.js";
import type { Rule, Statement } from "./rule.js";

const RULE = record(
  { statements: value<unknown>("a list of statements", Array.isArray), comment: optional(comment) },
  "a rule, with statements",
);
const KINDS = {
  field: record(FIELD_MATCH),
  action: variants("action", Object.fromEntries(Object.entries(ACTIONS).map(([name, { fields }]) => [name, fields]))),
};
const STATEMENT: Shape<unknown> = {
  expected: 'a statement, with "field" or "action"',
  find(path, given) {
    const tag = isObject(given) ? (["action", "field"] as const).find((one) => one in given) : undefined;
    return tag === undefined ? { path, expected: this.expected, value: given } : KINDS[tag].find(path, given);
  },
};

/** Throws FieldError for an invalid rule, and for one that no packet of the family can match. */
export function lowerRule(rule: Rule, options: StatementOptions): LoweredRule {
  check(RULE, "", rule);
  const context: LowerContext = { ...options, anonymous: [], pieces: [], facts: factsOf(options.family) };
  let isUnprintable = false;
  let last: string | undefined;
  for (const [index, statement] of rule.statements.entries()) {
    const lowered = within(`statement ${index}`, () => {
      check(STATEMENT, "", statement);
      if (last !== undefined) throw new FieldError("", `no statement after ${last}, which ends the rule`, statement);
      return lowerStatement(statement, context);
    });
    last = endOfRule(statement);
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

function lowerStatement(statement: Statement, context: LowerContext): Lowered {
  if (!("action" in statement)) return lowerCondition(statement, context);
  const kind = kindOf(statement);
  if (kind.families?.includes(context.family) === false)
    throw new FieldError("action", `an action of tables of family ${context.family}`, statement.action);
  if (kind.at !== undefined && context.base !== undefined) checkPlace(kind.at, context.base, statement.action);
  return kind.lower(statement, context);
}

/** Throws as `lowerRule` does, but accepts an address field whose family is unknown. */
export function printRule(rule: Rule, options: StatementOptions): string {
  const { exprs, anonymous, isUnprintable } = lowerRule(rule, { ...options, assumed: 4, isForText: true });
  if (isUnprintable === true)
    throw new FieldError("text", "nft's text in a raw statement, without which it cannot be printed", undefined);
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

/** Chains and rules as people write them: hooks, priorities and verdicts by name. */
import { Hook, Priority } from "../kernel/constants.js";
import type { BaseChain as FullBaseChain } from "../kernel/types.js";
import type { Action, ChainSpec as FullChainSpec, Match, Rule as FullRule } from "../table/index.js";
import { FieldError } from "./fields.js";
import { parseVerdict, type VerdictText } from "./verdicts.js";

export type HookName = keyof typeof Hook;
export type PriorityName = keyof typeof Priority;

/** Where a chain is called from. */
export interface BaseChain extends Omit<FullBaseChain, "hook" | "priority"> {
  readonly hook: HookName | number;
  /** Lower ones come first; a name stands for the number that nft gives it. */
  readonly priority: PriorityName | number;
}

/** One match or one action of a rule. */
export type Statement =
  | Match
  | Exclude<Action, { readonly action: "verdict" }>
  | { readonly action: "verdict"; readonly verdict: VerdictText };

export interface Rule extends Omit<FullRule, "statements"> {
  readonly statements: readonly Statement[];
}

export interface ChainSpec extends Omit<FullChainSpec, "base" | "rules"> {
  /** Absent: a chain that others jump to. */
  readonly base?: BaseChain;
  readonly rules: readonly Rule[];
}

/** `where` names the rule in errors. Throws FieldError. */
export function fullRule(where: string, rule: Rule): FullRule {
  const statements = rule.statements.map((statement, index) =>
    "action" in statement && statement.action === "verdict"
      ? { ...statement, verdict: parseVerdict(`${where}, statement ${index}`, statement.verdict) }
      : statement,
  );
  return { ...rule, statements };
}

export function fullChain(spec: ChainSpec): FullChainSpec {
  const { base, rules, ...rest } = spec;
  return {
    ...rest,
    ...(base !== undefined && {
      base: {
        ...base,
        hook: numberOf(Hook, base.hook, `chain ${spec.chain}, hook`),
        priority: numberOf(Priority, base.priority, `chain ${spec.chain}, priority`),
      },
    }),
    rules: rules.map((rule, index) => fullRule(`chain ${spec.chain}, rule ${index}`, rule)),
  };
}

function numberOf(names: Readonly<Record<string, number>>, given: string | number, where: string): number {
  if (typeof given === "number" && Number.isInteger(given)) return given;
  if (typeof given === "string" && Object.hasOwn(names, given)) return names[given];
  throw new FieldError(where, `an integer or one of ${Object.keys(names).join(", ")}`, given);
}

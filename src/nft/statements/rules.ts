/** Chains and rules in readable form, with names of hooks, priorities and verdicts. */
import type { BaseChain as FullBaseChain, Family } from "../kernel/kernel.js";
import type { Action, FieldMatch, ChainSpec as FullChainSpec, Rule as FullRule } from "../language/rule.js";
import { type HookName, hooksOf, prioritiesOf, type PriorityName } from "../language/hooks-and-priorities.js";
import { parseVerdict, type VerdictText } from "../language/verdicts.js";

export type { HookName, PriorityName } from "../language/hooks-and-priorities.js";

/** The hook that calls a chain. */
export interface BaseChain extends Omit<FullBaseChain, "hook" | "priority"> {
  /** The valid hooks depend on the family: netdev has ingress and egress, arp has input and output, and inet also has ingress, for devices. */
  readonly hook: HookName | number;
  /** Lower ones come first. A name means nft's number for it in tables of the family. */
  readonly priority: PriorityName | number;
}

/** One condition or one action of a rule. */
export type Statement =
  | FieldMatch
  | Exclude<Action, { readonly action: "verdict" }>
  | { readonly action: "verdict"; readonly verdict: VerdictText };

export interface Rule extends Omit<FullRule, "statements"> {
  readonly statements: readonly Statement[];
}

export interface ChainSpec extends Omit<FullChainSpec, "base" | "rules"> {
  /** Absent for a chain that other chains jump to. */
  readonly base?: BaseChain;
  readonly rules: readonly Rule[];
}

/** Returns a checked rule in the Table's form. Errors call it `where`. */
export function fullRule(where: string, rule: Rule): FullRule {
  const statements = rule.statements.map((statement, index) => {
    if (!("action" in statement)) return statement;
    const at = `${where}, statement ${index}`;
    if (statement.action === "verdict") return { ...statement, verdict: parseVerdict(at, statement.verdict) };
    if (statement.action !== "vmap" || typeof statement.map === "string") return statement;
    return {
      ...statement,
      map: statement.map.map(([key, verdict]) => [key, parseVerdict(`${at}, map`, verdict)] as const),
    };
  });
  return { ...rule, statements };
}

/** Returns a checked chain in the Table's form. */
export function fullChain(spec: ChainSpec, family: Family): FullChainSpec {
  const { base, rules, ...rest } = spec;
  return {
    ...rest,
    ...(base !== undefined && {
      base: {
        ...base,
        hook: numberOf(hooksOf(family), base.hook),
        priority: numberOf(prioritiesOf(family), base.priority),
      },
    }),
    rules: rules.map((rule, index) => fullRule(`chain ${spec.chain}, rule ${index}`, rule)),
  };
}

function numberOf<Name extends string>(names: Readonly<Partial<Record<Name, number>>>, given: Name | number): number {
  return typeof given === "number" ? given : names[given]!;
}

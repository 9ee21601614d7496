/** Reads the rules of a table with their text. */
import { SetFlag } from "../kernel/constants.js";
import type { Kernel, RuleInfo, TableRef } from "../kernel/kernel.js";
import { commentOf } from "../bytes/names-and-comments.js";
import { ruleText, type RuleTextOptions } from "./rule-text.js";
import type { ListedSet } from "./set-text.js";

/** A rule of any program. */
export interface ListedRule extends RuleInfo {
  /** As `nft -s list ruleset` prints it. What the text cannot say is "…". */
  readonly text: string;
}

/** Returns the rules of a table, or of one chain, with their text. Rejects with KernelError. */
export async function listRules(
  kernel: Pick<Kernel, "rules" | "sets" | "elements">,
  table: TableRef,
  chain?: string,
): Promise<ListedRule[]> {
  const rules = await kernel.rules(table, chain);
  const sets = new Map<string, ListedSet>();
  const used = new Set(rules.flatMap(({ exprs }) => exprs.flatMap((expr) => anonymousIn(expr))));
  for (const info of await kernel.sets(table)) {
    const isNeeded = (info.flags & SetFlag.anonymous) !== 0 && used.has(info.set);
    sets.set(info.set, { info, elements: isNeeded ? await kernel.elements(table, info) : undefined });
  }
  return rules.map((rule) => ({
    ...rule,
    text: fullText(rule, { family: table.family, set: (name) => sets.get(name) }),
  }));
}

function anonymousIn(expr: RuleInfo["exprs"][number]): readonly string[] {
  if (expr.type === "lookup") return [expr.set];
  return expr.type === "objref" && expr.setName !== undefined ? [expr.setName] : [];
}

/** The text of a rule with its comment. */
export function fullText({ exprs, userdata }: Pick<RuleInfo, "exprs" | "userdata">, options: RuleTextOptions): string {
  const text = ruleText(exprs, options);
  const comment = commentOf(userdata);
  return comment === undefined ? text : `${text} comment "${comment}"`.trim();
}

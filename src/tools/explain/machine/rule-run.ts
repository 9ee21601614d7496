/**
 * Runs one rule on one branch of a packet. Expressions that cannot be evaluated give "maybe".
 */
import type { Branch } from "./branch.js";
import { evaluate } from "./expressions.js";
import type { RuleEnd, World } from "./machine-world.js";
import { type Place, RuleContext } from "./rule-context.js";

/** Returns the branches at their ends. Branches in which the rule does not match come first. */
export async function runRule(world: World, place: Place, branch: Branch): Promise<readonly RuleEnd[]> {
  const rule = new RuleContext(world, place, branch);
  for (const expr of place.rule.exprs) {
    const done = await evaluate(expr, rule);
    if (done === "ended") return rule.ends;
    if (done === "maybe") rule.fork();
    else if (typeof done === "object" && done.verdict === "break")
      return [...rule.ends, { branch: rule.branch, effect: "break" }];
    else if (done !== "next" && (typeof done !== "object" || done.verdict !== "continue")) {
      if (done === "unknown") rule.branch = rule.guess("its effect on the packet");
      if (typeof done === "object" && done.verdict === "queue") rule.branch = rule.guess("the decision of a program");
      if (typeof done === "object" && done.verdict === "drop") rule.step(rule.isOurs ? "drop" : rule.ruleText);
      return [...rule.ends, { branch: rule.branch, effect: done }];
    }
  }
  return [...rule.ends, { branch: rule.branch, effect: "next" }];
}

import type { RuleInfo } from "../nft/kernel/kernel.js";

/** The chain that a rule jumps or goes to. */
export function jumpTarget({ exprs }: Pick<RuleInfo, "exprs">): string | undefined {
  for (const expr of exprs) {
    if (expr.type !== "immediate" || expr.data instanceof Uint8Array) continue;
    if (expr.data.verdict === "jump" || expr.data.verdict === "goto") return expr.data.chain;
  }
  return undefined;
}

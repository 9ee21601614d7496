/** Finds how a packet ended: the hook, and whether the rule sent an error. Reads from the kernel on demand. */
import { HOOK_NAMES } from "../../nft/kernel/constants.js";
import type { ChainInfo, Expr, Kernel, RuleInfo, TraceEvent } from "../../nft/kernel/kernel.js";
import type { FoldedPacket } from "./trace-fold.js";
import { reasonOf } from "./drop-reasons.js";
import type { TracedBy, TracedVerdict } from "./traced-packet.js";

type RuleKernel = Pick<Kernel, "chains" | "rules">;

/** Chains may change while this runs. A chain that is gone is not named. */
export async function verdictOf(
  { end, event, base }: FoldedPacket,
  kernel: RuleKernel,
): Promise<{ verdict: TracedVerdict; by?: TracedBy }> {
  if (end === "accepted" || end === "delivered") return { verdict: end };
  const exprs = end === "dropped" ? await ruleOf(event, kernel) : undefined;
  const by = {
    table: `${event.family} ${event.table}`,
    chain: event.chain,
    hook: await hookOf(base, kernel),
    rule: event.rule?.toString(),
    reason: end === "dropped" ? reasonOf(event, exprs) : undefined,
  };
  return { verdict: exprs?.some(isReject) === true ? "rejected" : end, by };
}

async function hookOf({ family, table, chain }: TraceEvent, kernel: RuleKernel): Promise<string> {
  const [found] = await kernel.chains({ family, table }, [chain]).catch((): ChainInfo[] => []);
  return HOOK_NAMES[found?.base?.hook ?? -1] ?? "";
}

/** Returns undefined if no rule decided, or if the rule is gone. */
async function ruleOf(
  { family, table, chain, rule }: TraceEvent,
  kernel: RuleKernel,
): Promise<readonly Expr[] | undefined> {
  if (rule === undefined) return undefined;
  const rules = await kernel.rules({ family, table }, chain).catch((): RuleInfo[] => []);
  return rules.find(({ handle }) => handle === rule)?.exprs;
}

/** Whether the expression is a reject of nf_tables or of iptables-nft. */
function isReject(expr: Expr): boolean {
  if (expr.type === "reject") return true;
  return expr.type === "opaque" && expr.name === "target" && Buffer.from(expr.data).includes("REJECT\0");
}

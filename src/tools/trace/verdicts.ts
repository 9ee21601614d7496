/** Finds how a packet ended: the hook, and whether the rule sent an error. Reads from the kernel on demand. */
import { HOOK_NAMES } from "../../netlink/constants.js";
import type { ChainInfo, Expr, Kernel, RuleInfo, TraceEvent } from "../../netlink/kernel.js";
import type { FoldedPacket } from "./trace-fold.js";
import { reasonOf } from "./drop-reasons.js";
import type { TracedBy, TracedVerdict } from "./traced-packet.js";

/** Chains may change while this runs. A chain that is gone is not named. */
export class Verdicts {
  readonly #kernel: Pick<Kernel, "chains" | "rules">;

  constructor(kernel: Pick<Kernel, "chains" | "rules">) {
    this.#kernel = kernel;
  }

  async of({ end, event, base }: FoldedPacket): Promise<{ verdict: TracedVerdict; by?: TracedBy }> {
    if (end === "accepted" || end === "delivered") return { verdict: end };
    const exprs = end === "dropped" ? await this.#exprs(event) : undefined;
    const reason = end === "dropped" ? reasonOf(event, exprs) : undefined;
    const by = {
      table: `${event.family} ${event.table}`,
      chain: event.chain,
      hook: await this.#hook(base),
      rule: event.rule?.toString(),
      reason,
    };
    return { verdict: exprs?.some(isReject) === true ? "rejected" : end, by };
  }

  async #hook({ family, table, chain }: TraceEvent): Promise<string> {
    const [found] = await this.#kernel.chains({ family, table }, [chain]).catch((): ChainInfo[] => []);
    return HOOK_NAMES[found?.base?.hook ?? -1] ?? "";
  }

  /** Returns undefined if no rule decided, or if the rule is gone. */
  async #exprs({ family, table, chain, rule }: TraceEvent): Promise<readonly Expr[] | undefined> {
    if (rule === undefined) return undefined;
    const rules = await this.#kernel.rules({ family, table }, chain).catch((): RuleInfo[] => []);
    return rules.find(({ handle }) => handle === rule)?.exprs;
  }
}

/** Whether the expression is a reject of nf_tables or of iptables-nft. */
function isReject(expr: Expr): boolean {
  if (expr.type === "reject") return true;
  return expr.type === "opaque" && expr.name === "target" && Buffer.from(expr.data).includes("REJECT\0");
}

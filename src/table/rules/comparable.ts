/** Rules ready to be compared with the kernel's and to be sent. */
import { normalizeExpr } from "../../kernel/normalize.js";
import { SetFlag } from "../../kernel/constants.js";
import type { ElementBatch, Expr, SetInfo } from "../../kernel/types.js";
import { batchLayout } from "../../kernel/element-batch.js";
import { readU32 } from "../elements/bytes.js";
import type { AnonymousSet, StatementOptions } from "./fields.js";
import { lowerRule } from "./statements.js";
import type { ChainSpec, Rule } from "./types.js";
import { targetOf } from "../elements/verdicts.js";

/** Names that a rule depends on. */
export interface References {
  readonly chains: readonly string[];
  readonly sets: readonly string[];
}

/** What makes two rules the same: normal expressions, in which an anonymous set is named by its content, and the comment. */
export interface ComparableRule {
  readonly canonical: readonly Expr[];
  readonly comment?: string;
  readonly refs: References;
}

export interface PreparedRule extends ComparableRule {
  readonly exprs: readonly Expr[];
  readonly anonymous: readonly AnonymousSet[];
}

export interface DesiredChain {
  readonly spec: ChainSpec;
  readonly rules: readonly PreparedRule[];
}

export function prepareRule(rule: Rule, options: StatementOptions): PreparedRule {
  const lowered = lowerRule(rule, options);
  const content = (setId: number): string =>
    anonymousContent(lowered.anonymous[setId - 1].info, lowered.anonymous[setId - 1].elements);
  const canonical = lowered.exprs.map((expr) =>
    normalizeExpr(expr.type === "lookup" && expr.setId !== undefined ? renamed(expr, content(expr.setId)) : expr),
  );
  return {
    ...lowered,
    canonical,
    refs: referencesOf(canonical),
    ...(rule.comment === undefined ? {} : { comment: rule.comment }),
  };
}

/** Canonical form of a dumped rule; `anonymous` tells the content of the anonymous sets that are known. */
export function canonicalExprs(exprs: readonly Expr[], anonymous: ReadonlyMap<string, string>): Expr[] {
  return exprs.map((expr) => {
    const content = expr.type === "lookup" ? anonymous.get(expr.set) : undefined;
    return normalizeExpr(expr.type === "lookup" && content !== undefined ? renamed(expr, content) : expr);
  });
}

function renamed(expr: Extract<Expr, { type: "lookup" }>, set: string): Expr {
  const { setId: _, ...rest } = expr;
  return { ...rest, set };
}

/** A name that says what is in the set. It starts with a space, as no named set's can. */
export function anonymousContent(info: SetInfo, batch: ElementBatch): string {
  const layout = batchLayout(batch);
  const records: string[] = [];
  for (let i = 0; i < batch.count; i++) {
    const at = i * layout.stride;
    const key = Buffer.from(batch.bytes.subarray(at, at + batch.keyLen)).toString("hex");
    const flags = layout.flags < 0 ? 0 : readU32(batch.bytes, at + layout.flags);
    // nft opens an interval set that does not start at zero with the end of nothing.
    if (flags !== 0 && /^0*$/.test(key)) continue;
    const data = layout.data < 0 ? "" : `:${recordData(batch, at + layout.data)}`;
    records.push(`${key}${flags === 0 ? "" : "-"}${data}`);
  }
  return ` ${info.flags & (SetFlag.interval | SetFlag.map)} ${info.keyLen} ${records.toSorted().join(" ")}`;
}

function recordData(batch: ElementBatch, at: number): string {
  if (batch.verdicts !== undefined) return JSON.stringify(batch.verdicts[readU32(batch.bytes, at)]);
  return Buffer.from(batch.bytes.subarray(at, at + batch.dataLen)).toString("hex");
}

/** Chains and named sets that the expressions name. */
export function referencesOf(exprs: readonly Expr[]): References {
  const chains: string[] = [];
  const sets: string[] = [];
  for (const expr of exprs) {
    if (expr.type === "immediate" && !(expr.data instanceof Uint8Array)) {
      const chain = targetOf(expr.data);
      if (chain !== undefined) chains.push(chain);
    } else if ((expr.type === "lookup" || expr.type === "dynset") && !expr.set.startsWith(" ")) sets.push(expr.set);
    else if (expr.type === "objref" && expr.setName !== undefined) sets.push(expr.setName);
  }
  return { chains, sets };
}

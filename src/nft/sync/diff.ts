/** Prepares rules for comparison with the kernel's and for sending, and finds the smallest edit between two lists of rules. Pure. */
import { normalizeExpr } from "../kernel/normalize.js";
import { SetFlag } from "../kernel/constants.js";
import type { BaseChain, ElementBatch, Expr, SetInfo } from "../kernel/kernel.js";
import { elementsOf } from "../kernel/element-batch.js";
import { inNetworkOrder } from "../language/intervals.js";
import type { LoweredRule, StatementOptions } from "../lowering/lowered.js";
import { objectNamed } from "../language/object-kinds.js";
import { lowerRule } from "../statements/lower-rule.js";
import type { ChainSpec, Rule } from "../statements/rule.js";
import { chainOf } from "../elements/verdict-registry.js";

export interface References {
  readonly chains: readonly string[];
  readonly sets: readonly string[];
  /** Keys of named objects ("counter web"). */
  readonly objects: readonly string[];
}

/** Two rules are the same if their comments and normalized expressions are. An anonymous set is named by its content. */
export interface ComparableRule {
  readonly canonical: readonly Expr[];
  readonly comment: string | undefined;
  readonly refs: References;
}

export type PreparedRule = ComparableRule & LoweredRule;

/** A chain with the numbers of its hook and priority. */
export interface NumberedChain extends ChainSpec {
  readonly base?: BaseChain;
}

export interface DesiredChain {
  readonly spec: NumberedChain;
  readonly rules: readonly PreparedRule[];
}

export function prepareRule(rule: Rule, options: StatementOptions): PreparedRule {
  const { exprs: lowered, anonymous } = lowerRule(rule, options);
  const exprs = inNetworkOrder(lowered, options.setSpec ?? (() => undefined));
  const contents = anonymous.map(({ info, elements }) => anonymousContent(info, elements));
  const contentOf = ({ setId }: Lookup): string | undefined => (setId === undefined ? undefined : contents[setId - 1]);
  const comparable = comparableRule(exprs, rule.comment, contentOf);
  const targets = anonymous.flatMap(({ elements }) =>
    (elements.verdicts ?? []).flatMap((verdict) => chainOf(verdict) ?? []),
  );
  if (targets.length === 0) return { exprs, anonymous, ...comparable };
  return {
    exprs,
    anonymous,
    ...comparable,
    refs: { ...comparable.refs, chains: [...comparable.refs.chains, ...targets] },
  };
}

type Lookup = Extract<Expr, { type: "lookup" }>;

/** @param contentOf the content of the anonymous set that a look-up names, if it is known. */
export function comparableRule(
  exprs: readonly Expr[],
  comment: string | undefined,
  contentOf: (lookup: Lookup) => string | undefined,
): ComparableRule {
  const canonical = exprs.map((expr) => {
    const content = expr.type === "lookup" ? contentOf(expr) : undefined;
    // The normal form does not include the set's number in the batch.
    return normalizeExpr(expr.type === "lookup" && content !== undefined ? { ...expr, set: content } : expr);
  });
  return { canonical, comment, refs: referencesOf(canonical) };
}

/** A name that encodes the content of the set. It starts with a space, which the name of a named set cannot. */
export function anonymousContent(info: SetInfo, batch: ElementBatch): string {
  const records: string[] = [];
  for (const { key, keyEnd, end, catchall, data, verdict } of elementsOf(batch)) {
    const isPlain = !end && !catchall;
    // In an interval set that does not start at zero, nft puts an interval end at zero first.
    if (!isPlain && key.every((byte) => byte === 0)) continue;
    const last = keyEnd === undefined ? "" : `-${hex(keyEnd)}`;
    const value = verdict === undefined ? data && hex(data) : JSON.stringify(verdict);
    records.push(`${hex(key)}${last}${isPlain ? "" : "-"}${value === undefined ? "" : `:${value}`}`);
  }
  return ` ${info.flags & (SetFlag.interval | SetFlag.map)} ${info.keyLen} ${records.toSorted().join(" ")}`;
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}

/** Chains, named sets and objects that the expressions name. */
export function referencesOf(exprs: readonly Expr[]): References {
  const chains: string[] = [];
  const sets: string[] = [];
  const objects: string[] = [];
  for (const expr of exprs) {
    if (expr.type === "immediate" && !(expr.data instanceof Uint8Array)) {
      const chain = chainOf(expr.data);
      if (chain !== undefined) chains.push(chain);
    } else if ((expr.type === "lookup" || expr.type === "dynset") && !expr.set.startsWith(" ")) sets.push(expr.set);
    else if (expr.type === "objref") {
      const object = objectNamed(expr);
      if (expr.setName !== undefined) sets.push(expr.setName);
      if (object !== undefined) objects.push(object);
    }
  }
  return { chains, sets, objects };
}

/** One step of an edit script, in the order of the desired list. */
export type Edit =
  { readonly edit: "keep" | "delete"; readonly from: number } | { readonly edit: "add"; readonly to: number };

/** With more comparisons than this, the middle part is replaced as a whole. */
const MAX_COMPARISONS = 250_000;

/** Skips the common head and tail, which most changes leave, then finds the longest common subsequence. */
export function editScript<A, B>(from: readonly A[], to: readonly B[], same: (a: A, b: B) => boolean): Edit[] {
  const edits: Edit[] = [];
  let [i, j, fromEnd, toEnd] = [0, 0, from.length, to.length];
  for (; i < fromEnd && j < toEnd && same(from[i], to[j]); j++) edits.push({ edit: "keep", from: i++ });
  while (fromEnd > i && toEnd > j && same(from[fromEnd - 1], to[toEnd - 1]))
    [fromEnd, toEnd] = [fromEnd - 1, toEnd - 1];
  const [start, first] = [i, j];
  const width = toEnd - first + 1;
  const cells = (fromEnd - start) * (width - 1);
  // lengths[(i - start) * width + j - first]: length of the longest common subsequence of from[i…] and to[j…].
  const lengths = new Uint32Array(cells <= MAX_COMPARISONS ? (fromEnd - start + 1) * width : 0);
  const equal = new Uint8Array(lengths.length);
  for (let row = fromEnd - 1; row >= start && lengths.length > 0; row--) {
    for (let column = toEnd - 1; column >= first; column--) {
      const at = (row - start) * width + column - first;
      equal[at] = same(from[row], to[column]) ? 1 : 0;
      lengths[at] = equal[at] === 1 ? lengths[at + width + 1] + 1 : Math.max(lengths[at + width], lengths[at + 1]);
    }
  }
  while (i < fromEnd || j < toEnd) {
    const at = (i - start) * width + j - first;
    if (i < fromEnd && j < toEnd && equal[at] === 1) {
      edits.push({ edit: "keep", from: i++ });
      j++;
    } else if (i < fromEnd && (j === toEnd || (lengths[at + width] ?? 0) >= (lengths[at + 1] ?? 0)))
      edits.push({ edit: "delete", from: i++ });
    else edits.push({ edit: "add", to: j++ });
  }
  while (i < from.length) edits.push({ edit: "keep", from: i++ });
  return edits;
}

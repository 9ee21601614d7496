/**
 * From what the kernel holds to what is desired, as one batch. Pure.
 *
 * The order that the kernel accepts in all cases: first everything that refers to something goes (rules, elements), then what
 * was referred to (sets, chains); then targets come (chains, sets), then what refers to them (rules, elements). Rules come while new maps are
 * still empty: for each rule that names a map, the kernel looks at all that is in it. So an
 * object can be deleted and created anew under its name in the same batch, and all deletions of elements come before all additions,
 * which is how an element's data is replaced.
 */
import { DATA_VERDICT } from "../../kernel/constants.js";
import type { BaseChain, Op, SetInfo, TableRef } from "../../kernel/types.js";
import { sameExprs } from "../../kernel/normalize.js";
import { editScript } from "../rules/diff.js";
import type { PackedChange } from "../elements/element-set.js";
import { fateOf, tableFlags } from "../quirks.js";
import type { ComparableRule, PreparedRule, DesiredChain } from "../rules/comparable.js";
import type { KernelChain, KernelRule, KernelState } from "./dump.js";
import { commentData } from "../rules/text.js";
import type { FaultyObject, OperationCounts } from "../rules/types.js";

/** What an operation is about, for its faults. */
export type Origin = Omit<FaultyObject, "errno" | "text" | "key" | "position">;

export interface PlannedOp {
  readonly op: Op;
  readonly origin: Origin;
}

export type Counts = Record<"table" | "chain" | "rule" | "set" | "element", OperationCounts>;

export interface ChainPlan {
  readonly name: string;
  /** Undefined: it goes. */
  readonly desired: DesiredChain | undefined;
  /** All its rules are written anew: something that they name is created anew. */
  readonly rebuild: boolean;
}

export interface SetPlan {
  readonly name: string;
  readonly action: "keep" | "create" | "recreate" | "delete";
  /** For create and recreate. */
  readonly info?: SetInfo;
  /** Elements that go with a verdict map, for the count. */
  readonly kernelElements: number;
  readonly change?: PackedChange;
}

export interface PlanInput {
  readonly ref: TableRef;
  readonly comment: string | undefined;
  /** Whether the table is to be owned, by the socket with this port (ownership.ts). */
  readonly own: boolean;
  readonly portId: number;
  readonly state: KernelState;
  readonly chains: readonly ChainPlan[];
  readonly sets: readonly SetPlan[];
  /** Verdict maps that go are emptied first: see quirks/. */
  readonly flushMaps: boolean;
  /** Chains that cannot be deleted: see busy-chains.ts. */
  readonly busy: ReadonlySet<string>;
}

export interface Plan {
  readonly ops: readonly PlannedOp[];
  readonly counts: Counts;
  /** Brings `state` to what the kernel holds once the batch is in force. */
  settle(): void;
}

export function noCounts(): Counts {
  const zero = (): OperationCounts => ({ add: 0, delete: 0 });
  return { table: zero(), chain: zero(), rule: zero(), set: zero(), element: zero() };
}

/** Operations by phase, in the order in which the phases go out. */
export class Phases {
  readonly removeRules: PlannedOp[] = [];
  readonly removeElements: PlannedOp[] = [];
  readonly removeSets: PlannedOp[] = [];
  readonly removeChains: PlannedOp[] = [];
  readonly addTable: PlannedOp[] = [];
  readonly addChains: PlannedOp[] = [];
  readonly addSets: PlannedOp[] = [];
  readonly addElements: PlannedOp[] = [];
  readonly addRules: PlannedOp[] = [];
  readonly counts = noCounts();
  readonly settle: (() => void)[] = [];
  #anonymousIds = 0;

  inOrder(): PlannedOp[] {
    return [
      this.addTable,
      this.removeRules,
      this.removeElements,
      this.removeSets,
      this.removeChains,
      this.addChains,
      this.addSets,
      this.addRules,
      this.addElements,
    ].flat();
  }

  /** Adds a rule's anonymous sets, then the rule. */
  addRule(ref: TableRef, rule: PreparedRule, op: RuleOp, origin: Origin, comment = rule.comment): void {
    const base = this.#anonymousIds;
    for (const { info, elements } of rule.anonymous) {
      const id = ++this.#anonymousIds;
      this.addRules.push({ op: { op: "add", kind: "set", ...ref, ...info, id }, origin });
      this.addRules.push({ op: { op: "add", kind: "elements", ...ref, set: info.set, setId: id, elements }, origin });
      this.counts.set.add++;
      this.counts.element.add += elements.count;
    }
    const exprs =
      base === 0 || rule.anonymous.length === 0
        ? rule.exprs
        : rule.exprs.map((expr) =>
            expr.type === "lookup" && expr.setId !== undefined ? { ...expr, setId: expr.setId + base } : expr,
          );
    const userdata = commentData(comment);
    this.addRules.push({
      op: { ...op, kind: "rule", ...ref, exprs, ...(userdata === undefined ? {} : { userdata }) },
      origin,
    });
    this.counts.rule.add++;
  }

  deleteRule(ref: TableRef, chain: string, handle: bigint, origin: Origin): void {
    this.removeRules.push({ op: { op: "delete", kind: "rule", ...ref, chain, handle }, origin });
    this.counts.rule.delete++;
  }
}

/** Where a rule goes: at the end (add), or before the rule `position`, or first (insert). */
export interface RuleOp {
  readonly op: "add" | "insert";
  readonly chain: string;
  readonly position?: bigint;
}

export function buildPlan(input: PlanInput, phases = new Phases()): Plan {
  planTable(input, phases);
  for (const set of input.sets) planSet(input, set, phases);
  for (const chain of input.chains) planChain(input, chain, phases);
  return {
    ops: phases.inOrder(),
    counts: phases.counts,
    settle: () => {
      for (const step of phases.settle) step();
    },
  };
}

function planTable({ ref, comment, own, portId, state }: PlanInput, phases: Phases): void {
  const origin: Origin = { kind: "table" };
  if (state.inTheWay) {
    phases.addTable.push({ op: { op: "delete", kind: "table", ...ref }, origin });
    phases.counts.table.delete++;
  } else if (state.table !== undefined && fateOf(state.table, own, portId) !== "update") return;
  const userdata = commentData(comment);
  const flags = tableFlags(own);
  phases.addTable.push({
    op: { op: "add", kind: "table", ...ref, flags, ...(userdata === undefined ? {} : { userdata }) },
    origin,
  });
  phases.counts.table.add++;
  phases.settle.push(() => {
    state.table = { flags, ...(own ? { owner: portId } : {}) };
    state.inTheWay = false;
  });
}

function planSet({ ref, state, flushMaps }: PlanInput, plan: SetPlan, phases: Phases): void {
  const origin: Origin = { kind: "set", set: plan.name };
  if (plan.action === "delete" || plan.action === "recreate") {
    const isVerdictMap = holdsChains(state, plan.name);
    if (isVerdictMap) phases.counts.element.delete += plan.kernelElements;
    if (isVerdictMap && flushMaps) {
      phases.removeElements.push({ op: { op: "flush", kind: "elements", ...ref, set: plan.name }, origin });
    }
    phases.removeSets.push({ op: { op: "delete", kind: "set", ...ref, set: plan.name }, origin });
    phases.counts.set.delete++;
    phases.settle.push(() => {
      state.sets.delete(plan.name);
      state.unusable.delete(plan.name);
    });
  }
  const { info } = plan;
  // One that is to be created may be there already: with chains that went ahead.
  if (info !== undefined && (plan.action === "recreate" || (plan.action === "create" && !state.sets.has(plan.name)))) {
    phases.addSets.push({ op: { op: "add", kind: "set", ...ref, ...info }, origin });
    phases.counts.set.add++;
    phases.settle.push(() => void state.sets.set(plan.name, info));
  }
  planElements(ref, plan, phases);
}

/** Whether the kernel's set is a verdict map, whose elements hold on to chains. */
export function holdsChains({ sets }: KernelState, name: string): boolean {
  return sets.get(name)?.dataType === DATA_VERDICT;
}

function planElements(ref: TableRef, { name, change }: SetPlan, phases: Phases): void {
  const origin: Origin = { kind: "element", set: name };
  if (change?.deletes !== undefined) {
    phases.removeElements.push({
      op: { op: "delete", kind: "elements", ...ref, set: name, elements: change.deletes },
      origin,
    });
    phases.counts.element.delete += change.deletes.count;
  }
  if (change?.adds !== undefined) {
    phases.addElements.push({ op: { op: "add", kind: "elements", ...ref, set: name, elements: change.adds }, origin });
    phases.counts.element.add += change.adds.count;
  }
}

function planChain(input: PlanInput, { name, desired, rebuild }: ChainPlan, phases: Phases): void {
  const { state, busy } = input;
  const kernel = state.chains.get(name);
  if (kernel !== undefined && desired !== undefined && chainServes(kernel, desired)) {
    if (!samePolicy(kernel.base, desired.spec.base)) pushChain(input, desired, phases, kernel);
    if (rebuild) rewriteRules(input.ref, name, kernel, desired, phases);
    else editRules(input, name, kernel, desired, phases);
    return;
  }
  if (kernel !== undefined) {
    const origin: Origin = { kind: "chain", chain: name };
    flushRules(input.ref, name, kernel, phases);
    if (desired === undefined && busy.has(name)) {
      phases.settle.push(() => {
        kernel.rules = [];
      });
      return;
    }
    phases.removeChains.push({ op: { op: "delete", kind: "chain", ...input.ref, chain: name }, origin });
    phases.counts.chain.delete++;
    phases.settle.push(() => void state.chains.delete(name));
  }
  if (desired === undefined) return;
  pushChain(input, desired, phases, undefined);
  addAll(input.ref, name, desired, phases);
  phases.settle.push(
    () =>
      void state.chains.set(name, {
        base: desired.spec.base,
        comment: desired.spec.comment,
        rules: desired.rules.map(withoutHandle),
      }),
  );
}

/** Adds the chain, or updates its policy. */
function pushChain({ ref }: PlanInput, { spec }: DesiredChain, phases: Phases, kernel: KernelChain | undefined): void {
  const userdata = kernel === undefined ? commentData(spec.comment) : undefined;
  const base = spec.base === undefined ? {} : { base: { ...spec.base, policy: spec.base.policy ?? "accept" } as const };
  phases.addChains.push({
    op: {
      op: "add",
      kind: "chain",
      ...ref,
      chain: spec.chain,
      ...base,
      ...(userdata === undefined ? {} : { userdata }),
    },
    origin: { kind: "chain", chain: spec.chain },
  });
  phases.counts.chain.add++;
  if (kernel !== undefined) {
    phases.settle.push(() => {
      kernel.base = spec.base;
    });
  }
}

function flushRules(ref: TableRef, name: string, kernel: KernelChain, phases: Phases): void {
  if (kernel.rules.length === 0) return;
  phases.removeRules.push({
    op: { op: "flush", kind: "rule", ...ref, chain: name },
    origin: { kind: "chain", chain: name },
  });
  phases.counts.rule.delete += kernel.rules.length;
}

function addAll(ref: TableRef, name: string, desired: DesiredChain, phases: Phases): void {
  for (const [index, rule] of desired.rules.entries())
    phases.addRule(ref, rule, { op: "add", chain: name }, { kind: "rule", chain: name, ruleIndex: index });
}

function rewriteRules(ref: TableRef, name: string, kernel: KernelChain, desired: DesiredChain, phases: Phases): void {
  flushRules(ref, name, kernel, phases);
  addAll(ref, name, desired, phases);
  phases.settle.push(() => {
    kernel.rules = desired.rules.map(withoutHandle);
  });
}

function editRules({ ref }: PlanInput, name: string, kernel: KernelChain, desired: DesiredChain, phases: Phases): void {
  const edits = editScript(kernel.rules, desired.rules, sameRule);
  if (edits.every((edit) => edit.edit === "keep")) return;
  if (kernel.rules.some((rule) => rule.handle === undefined)) return rewriteRules(ref, name, kernel, desired, phases);
  const after: KernelRule[] = [];
  // From the end, so that the rule before which an added one goes is known.
  let next: bigint | undefined;
  const positions = new Map<number, bigint>();
  for (const edit of edits.toReversed()) {
    if (edit.edit === "keep") next = kernel.rules[edit.from].handle;
    else if (edit.edit === "add" && next !== undefined) positions.set(edit.to, next);
  }
  for (const edit of edits) {
    if (edit.edit === "keep") after.push(kernel.rules[edit.from]);
    else if (edit.edit === "delete") {
      const { handle } = kernel.rules[edit.from];
      if (handle !== undefined) phases.deleteRule(ref, name, handle, { kind: "rule", chain: name });
    } else {
      const position = positions.get(edit.to);
      const where: RuleOp =
        position === undefined ? { op: "add", chain: name } : { op: "insert", chain: name, position };
      phases.addRule(ref, desired.rules[edit.to], where, { kind: "rule", chain: name, ruleIndex: edit.to });
      after.push(withoutHandle(desired.rules[edit.to]));
    }
  }
  phases.settle.push(() => {
    kernel.rules = after;
  });
}

/** Whether a change of the chain's rules needs handles that are not known. */
export function needsHandles(kernel: KernelChain, desired: DesiredChain): boolean {
  if (kernel.rules.every((rule) => rule.handle !== undefined) || !chainServes(kernel, desired)) return false;
  return (
    kernel.rules.length !== desired.rules.length || !kernel.rules.every((rule, i) => sameRule(rule, desired.rules[i]))
  );
}

export function sameRule(a: ComparableRule, b: ComparableRule): boolean {
  return a.comment === b.comment && sameExprs(a.canonical, b.canonical);
}

/** Whether the kernel's chain can stay: neither hook nor comment can be changed in place, the policy can. */
export function chainServes(kernel: KernelChain, { spec }: DesiredChain): boolean {
  if (kernel.comment !== spec.comment) return false;
  if (kernel.base === undefined || spec.base === undefined) return kernel.base === spec.base;
  const devices = (base: BaseChain): string => [...(base.devices ?? [])].toSorted().join(" ");
  return (
    kernel.base.type === spec.base.type &&
    kernel.base.hook === spec.base.hook &&
    kernel.base.priority === spec.base.priority &&
    devices(kernel.base) === devices(spec.base)
  );
}

function samePolicy(a: BaseChain | undefined, b: BaseChain | undefined): boolean {
  return (a?.policy ?? "accept") === (b?.policy ?? "accept");
}

function withoutHandle(rule: PreparedRule): KernelRule {
  return {
    canonical: rule.canonical,
    refs: rule.refs,
    ...(rule.comment === undefined ? {} : { comment: rule.comment }),
  };
}

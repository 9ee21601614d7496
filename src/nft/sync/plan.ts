/**
 * Plans one batch that brings the kernel's state to the desired state. Pure.
 *
 * The kernel always accepts this order:
 *
 * 1. Delete the objects that refer to others (rules, elements).
 * 2. Delete the objects that they referred to (sets, named objects, chains).
 * 3. Add the objects to refer to (chains, named objects, sets).
 * 4. Add the objects that refer to them (rules, elements). Rules come while new maps are empty: for each new rule with a map, the kernel checks all its
 *    elements.
 *
 * So one batch can delete an object and create it again under the same name. All deletions of elements come before all additions, which is how the
 * data of an element is replaced.
 */
import { DATA_VERDICT, SetFlag } from "../kernel/constants.js";
import { TimeSlice } from "../../base/time-slice.js";
import type { ElementBatch, ObjectDump, Op, SetInfo, TableRef } from "../kernel/kernel.js";
import { sameNormalExprs } from "../kernel/normalize.js";
import { type ComparableRule, type DesiredChain, type Edit, editScript, type PreparedRule } from "./diff.js";
import type { Packing } from "../elements/packing.js";
import { catchAllIn, withCatchAll } from "../language/intervals.js";
import { type DesiredObject, type ObjectFate, withUse } from "../statements/object-definitions.js";
import { describeHook, policyOf } from "../language/hooks-and-priorities.js";
import type { PackedChange } from "../elements/batch-writer.js";
import { fateOf, OWNED } from "./quirks.js";
import { isDormant, type KernelChain, type KernelRule, type KernelState } from "./table-dump.js";
import { commentData } from "../bytes/names-and-comments.js";
import type { FaultyObject, OperationCounts } from "./apply-result.js";

/** The object of an operation, for reporting its faults. */
type Origin = Omit<FaultyObject, "errno" | "text" | "key" | "position">;

export interface PlannedOp {
  readonly op: Exclude<Op, { kind: "flowtable" }>;
  readonly origin: Origin;
}

export type Counts = Record<"table" | "chain" | "rule" | "set" | "object" | "element", OperationCounts>;

export interface ChainPlan {
  readonly name: string;
  /** Undefined: the chain is deleted. */
  readonly desired: DesiredChain | undefined;
  /** Objects that are deleted, even if they are created again: the rules that name one are written again. */
  readonly going?: Names | undefined;
}

export interface SetPlan {
  readonly name: string;
  readonly action: "keep" | "create" | "recreate" | "delete";
  /** Set for create and recreate. */
  readonly info?: SetInfo;
  /** Number of elements that are deleted with a verdict map. */
  readonly kernelElements: number;
  /** Its elements were taken: pack them, then settle or abort. */
  readonly taken?: Packing;
  /** The packed changes for one transaction. */
  readonly change?: PackedChange;
}

/** A change of a named object. */
export interface ObjectPlan {
  /** Its key ("counter web"). */
  readonly name: string;
  readonly fate: Exclude<ObjectFate, "keep">;
  readonly found: ObjectDump | undefined;
  readonly desired: DesiredObject | undefined;
}

export interface Names {
  readonly chains: ReadonlySet<string>;
  readonly sets: ReadonlySet<string>;
  readonly objects: ReadonlySet<string>;
}

/** Whether one of the rules names one of the objects. */
export function namesAny(rules: readonly ComparableRule[], names: Names): boolean {
  return rules.some(({ refs }) =>
    (["chains", "sets", "objects"] as const).some((kind) => refs[kind].some((name) => names[kind].has(name))),
  );
}

export interface PlanInput {
  readonly ref: TableRef;
  readonly comment: string | undefined;
  /** Whether the socket with port `portId` should own the table (quirks.ts). */
  readonly own: boolean;
  readonly portId: number;
  readonly state: KernelState;
  readonly chains: readonly ChainPlan[];
  readonly sets: readonly SetPlan[];
  readonly objects: readonly ObjectPlan[];
  /** By key: the objects of a table that is deleted first. Those that replace them continue their counts. */
  readonly former: ReadonlyMap<string, ObjectDump>;
  /** Whether to empty verdict maps before deleting them (quirks.ts). */
  readonly flushMaps: boolean;
  /** Whether to delete elements of sets with timeouts even if they may not exist: the kernel may have ended them. */
  readonly destroyTimed: boolean;
  /** Chains that cannot be deleted (quirks.ts). */
  readonly busy: ReadonlySet<string>;
  /** By set: the elements that packets had put into it, if the table is written from scratch. */
  readonly saved: ReadonlyMap<string, ElementBatch>;
}

export function noCounts(): Counts {
  const zero = (): OperationCounts => ({ add: 0, delete: 0 });
  return { table: zero(), chain: zero(), rule: zero(), set: zero(), object: zero(), element: zero() };
}

const PHASES = [
  "addTable",
  "removeRules",
  "removeElements",
  "removeSets",
  "removeObjects",
  "removeChains",
  "addChains",
  "addObjects",
  "addSets",
  "addRules",
  "addElements",
] as const;

type OfAnyTable<T> = T extends unknown ? Omit<T, keyof TableRef> : never;

export function isTimed({ sets }: KernelState, name: string): boolean {
  return ((sets.get(name)?.flags ?? 0) & SetFlag.timeout) !== 0;
}

/** Operations by phase, with their counts, and the steps to run after the commit. */
export class Plan {
  readonly counts = noCounts();
  readonly #steps: (() => void)[] = [];
  readonly #ops = new Map<(typeof PHASES)[number], PlannedOp[]>(PHASES.map((phase) => [phase, []]));
  #anonymousIds = 0;

  /** Returns the operations in the order that the kernel accepts. */
  get ops(): PlannedOp[] {
    return [...this.#ops.values()].flat();
  }

  onCommit(step: () => void): void {
    this.#steps.push(step);
  }

  /** Runs the steps after the commit. */
  settle(): void {
    for (const step of this.#steps) step();
  }

  /** @param count number of objects that the operation adds or deletes. */
  push(
    phase: (typeof PHASES)[number],
    ref: TableRef,
    op: OfAnyTable<PlannedOp["op"]>,
    origin: Origin,
    count = 1,
  ): void {
    this.#ops.get(phase)?.push({ op: { ...op, family: ref.family, table: ref.table }, origin });
    const { kind } = op;
    const counts = this.counts[kind === "elements" ? "element" : kind];
    if (op.op === "add" || op.op === "insert") counts.add += count;
    else counts.delete += count;
  }

  /** Adds a rule's anonymous sets, then the rule. */
  addRule(ref: TableRef, rule: PreparedRule, op: RuleOp, origin: Origin): void {
    const base = this.#anonymousIds;
    for (const { info, elements } of rule.anonymous) {
      const id = ++this.#anonymousIds;
      this.push("addRules", ref, { op: "add", kind: "set", ...info, id }, origin);
      const fill = { op: "add", kind: "elements", set: info.set, setId: id, elements } as const;
      this.push("addRules", ref, fill, origin, elements.count);
    }
    const exprs = rule.exprs.map((expr) =>
      expr.type === "lookup" && expr.setId !== undefined ? { ...expr, setId: expr.setId + base } : expr,
    );
    this.push("addRules", ref, { ...op, kind: "rule", exprs, ...userdataOf(rule.comment) }, origin);
  }

  /** @param originOf returns the origin of the added rule `to`. */
  editRules(ref: TableRef, chain: string, { from, to, edits }: RuleEdits, originOf: (to: number) => Origin): void {
    // From the end, because an added rule needs the handle of the rule after it.
    let next: bigint | undefined;
    const positions = new Map<number, bigint>();
    for (const edit of edits.toReversed()) {
      if (edit.edit === "keep") next = from[edit.from].handle;
      else if (edit.edit === "add" && next !== undefined) positions.set(edit.to, next);
    }
    for (const edit of edits) {
      if (edit.edit === "add") {
        const position = positions.get(edit.to);
        const where: RuleOp = position === undefined ? { op: "add", chain } : { op: "insert", chain, position };
        this.addRule(ref, to[edit.to], where, originOf(edit.to));
      } else if (edit.edit === "delete") {
        const { handle } = from[edit.from];
        if (handle === undefined) continue;
        this.push("removeRules", ref, { op: "delete", kind: "rule", chain, handle }, { kind: "rule", chain });
      }
    }
  }
}

/** Edits from the rules of a chain to the desired rules. */
interface RuleEdits {
  /** All must have handles. */
  readonly from: readonly { readonly handle?: bigint }[];
  readonly to: readonly PreparedRule[];
  readonly edits: readonly Edit[];
}

/** The place of a rule: at the end (add), before the rule `position`, or first (insert). */
interface RuleOp {
  readonly op: "add" | "insert";
  readonly chain: string;
  readonly position?: bigint;
}

function userdataOf(comment: string | undefined): { readonly userdata?: Uint8Array } {
  const userdata = commentData(comment);
  return userdata === undefined ? {} : { userdata };
}

/** Adds the operations for the input. When the plan is settled, `input.state` matches the kernel. Yields to the event loop now and then. */
export async function planTable(input: PlanInput, plan: Plan): Promise<void> {
  const { state } = input;
  if (state.inTheWay) plan.push("addTable", input.ref, { op: "delete", kind: "table" }, { kind: "table" });
  const { table } = state;
  const claims = table !== undefined && !isDormant(state) && fateOf(table, input.own, input.portId) === "update";
  if (state.inTheWay || table === undefined || claims) pushTable(input, plan);
  for (const set of input.sets) planSet(input, set, plan);
  const slice = new TimeSlice();
  for (const chain of input.chains) {
    planChain(input, chain, plan);
    if (slice.spent) await slice.yield();
  }
}

/**
 * Wakes a dormant table in a transaction of its own, the last one. The kernel refuses new base chains in the transaction that wakes a table
 * (nf_tables_addchain). Packets ignore a dormant table, so they only see the complete one.
 */
export function planWaking(input: Omit<PlanInput, "chains" | "sets">, plan: Plan): void {
  if (isDormant(input.state)) pushTable(input, plan);
}

function pushTable({ ref, comment, own, portId, state }: Omit<PlanInput, "chains" | "sets">, plan: Plan): void {
  const flags = own ? OWNED : 0;
  plan.push("addTable", ref, { op: "add", kind: "table", flags, ...userdataOf(comment) }, { kind: "table" });
  const kept = state.table?.comment ?? comment;
  plan.onCommit(() => {
    state.table = { flags, owner: own ? portId : undefined, comment: kept };
    state.inTheWay = false;
  });
}

/**
 * Objects are deleted after everything that refers to them, and added before it.
 * @param rest false: only create new objects, for chains that go ahead.
 */
export function planObjects(
  { ref, state, objects, former }: Pick<PlanInput, "ref" | "state" | "objects" | "former">,
  rest: boolean,
  plan: Plan,
): void {
  for (const { name, fate, found, desired } of objects) {
    if (fate === "create" ? state.objects.has(name) : !rest) continue;
    const origin: Origin = { kind: "object", object: found?.object ?? desired?.object };
    if (found !== undefined && fate !== "update") {
      const { object, objType } = found;
      plan.push("removeObjects", ref, { op: "delete", kind: "object", object, objType }, origin);
      plan.onCommit(() => void state.objects.delete(name));
    }
    if (desired === undefined) continue;
    const { spec, objType } = desired;
    const definition = { kind: "object", object: desired.object, objType, ...userdataOf(spec.comment) } as const;
    const data = fate === "update" ? desired.data : withUse(desired.data, state.objects.get(name) ?? former.get(name));
    plan.push("addObjects", ref, { op: "add", ...definition, data }, origin);
    plan.onCommit(() => void state.objects.set(name, { ...definition, data: desired.data, handle: 0n, use: 0 }));
  }
}

function planSet({ ref, state, flushMaps, destroyTimed, saved }: PlanInput, setPlan: SetPlan, plan: Plan): void {
  const { name: set, action, info, kernelElements, change } = setPlan;
  const origin: Origin = { kind: "set", set };
  if (action === "delete" || action === "recreate") {
    const held = holdsOn(state, set) ? kernelElements : 0;
    if (holdsOn(state, set) && flushMaps)
      plan.push("removeElements", ref, { op: "flush", kind: "elements", set }, origin, held);
    else plan.counts.element.delete += held;
    plan.push("removeSets", ref, { op: "delete", kind: "set", set }, origin);
    plan.onCommit(() => {
      state.sets.delete(set);
      state.unusable.delete(set);
    });
  }
  // A set to create may exist already, if it went ahead with chains.
  if (info !== undefined && (action === "recreate" || (action === "create" && !state.sets.has(set)))) {
    plan.push("addSets", ref, { op: "add", kind: "set", ...info }, origin);
    plan.onCommit(() => void state.sets.set(set, info));
    const elements = saved.get(set);
    if (elements !== undefined)
      plan.push(
        "addElements",
        ref,
        { op: "add", kind: "elements", set, elements },
        { kind: "element", set },
        elements.count,
      );
  }
  if (destroyTimed && isTimed(state, set)) destroyCatchAll(ref, set, change, plan);
  for (const [phase, op, elements] of [
    ["removeElements", destroyTimed && isTimed(state, set) ? "destroy" : "delete", change?.deletes],
    ["addElements", "add", change?.adds],
  ] as const) {
    if (elements === undefined) continue;
    const carry = op === "add" && change?.carry !== undefined ? { carry: change.carry } : {};
    const operation = { op, kind: "elements", set, elements, ...carry } as const;
    plan.push(phase, ref, operation, { kind: "element", set }, elements.count);
  }
}

/** A catch-all element that has expired prevents another one until the kernel collects it, which may be after the next change of the set. */
function destroyCatchAll(ref: TableRef, set: string, change: PackedChange | undefined, plan: Plan): void {
  const { adds, deletes } = change ?? {};
  if (adds === undefined || catchAllIn(adds) < 0 || (deletes !== undefined && catchAllIn(deletes) >= 0)) return;
  const { keyLen } = adds;
  const elements = withCatchAll({ count: 1, keyLen, dataLen: 0, bytes: new Uint8Array(keyLen) }, 0);
  plan.push("removeElements", ref, { op: "destroy", kind: "elements", set, elements }, { kind: "element", set }, 0);
}

/** Whether elements of the kernel's set refer to chains (a verdict map) or to named objects. */
export function holdsOn({ sets }: KernelState, name: string): boolean {
  const set = sets.get(name);
  return set !== undefined && (set.dataType === DATA_VERDICT || (set.flags & SetFlag.object) !== 0);
}

function planChain(input: PlanInput, { name, desired, going }: ChainPlan, plan: Plan): void {
  const { ref, state, busy } = input;
  const kernel = state.chains.get(name);
  if (kernel !== undefined && desired !== undefined && chainServes(kernel, desired)) {
    if (policyOf(kernel.base) !== policyOf(desired.spec.base)) pushChain(ref, desired, plan, kernel);
    return editRules(ref, kernel, desired, going, plan);
  }
  if (kernel !== undefined) {
    flushRules(ref, name, kernel, plan);
    if (desired === undefined && busy.has(name)) return plan.onCommit(() => void (kernel.rules = []));
    plan.push("removeChains", ref, { op: "delete", kind: "chain", chain: name }, { kind: "chain", chain: name });
    plan.onCommit(() => void state.chains.delete(name));
  }
  if (desired === undefined) return;
  pushChain(ref, desired, plan, undefined);
  const { base, comment } = desired.spec;
  const made: KernelChain = { base, comment, rules: [] };
  plan.onCommit(() => void state.chains.set(name, made));
  editRules(ref, made, desired, undefined, plan);
}

function pushChain(ref: TableRef, { spec }: DesiredChain, plan: Plan, kernel: KernelChain | undefined): void {
  const { chain } = spec;
  const base = spec.base === undefined ? {} : { base: { ...spec.base, policy: spec.base.policy ?? "accept" } as const };
  const userdata = kernel === undefined ? userdataOf(spec.comment) : {};
  plan.push("addChains", ref, { op: "add", kind: "chain", chain, ...base, ...userdata }, { kind: "chain", chain });
  if (kernel !== undefined) plan.onCommit(() => void (kernel.base = spec.base));
}

function flushRules(ref: TableRef, chain: string, { rules }: KernelChain, plan: Plan): void {
  if (rules.length === 0) return;
  plan.push("removeRules", ref, { op: "flush", kind: "rule", chain }, { kind: "chain", chain }, rules.length);
}

function editRules(
  ref: TableRef,
  kernel: KernelChain,
  desired: DesiredChain,
  going: Names | undefined,
  plan: Plan,
): void {
  const { chain } = desired.spec;
  const to = desired.rules;
  let from = kernel.rules;
  const stays = (rule: KernelRule, other: PreparedRule): boolean =>
    sameRule(rule, other) && (going === undefined || !namesAny([rule], going));
  let edits = editScript(from, to, stays);
  if (edits.every(({ edit }) => edit === "keep")) return;
  if (from.some(({ handle }) => handle === undefined)) {
    flushRules(ref, chain, kernel, plan);
    from = [];
    edits = editScript(from, to, sameRule);
  }
  plan.editRules(ref, chain, { from, to, edits }, (ruleIndex) => ({ kind: "rule", chain, ruleIndex }));
  const after = edits.flatMap((edit): readonly KernelRule[] =>
    edit.edit === "keep" ? [kernel.rules[edit.from]] : edit.edit === "add" ? [to[edit.to]] : [],
  );
  plan.onCommit(() => void (kernel.rules = after));
}

/** Whether changing the chain's rules needs unknown handles. */
export function needsHandles(kernel: KernelChain, desired: DesiredChain): boolean {
  if (kernel.rules.every((rule) => rule.handle !== undefined) || !chainServes(kernel, desired)) return false;
  return (
    kernel.rules.length !== desired.rules.length || !kernel.rules.every((rule, i) => sameRule(rule, desired.rules[i]))
  );
}

export function sameRule(a: ComparableRule, b: ComparableRule): boolean {
  return a.comment === b.comment && sameNormalExprs(a.canonical, b.canonical);
}

/** Whether the kernel's chain can be kept. The policy can be changed in place, but not the hook or the comment. */
export function chainServes({ base, comment }: KernelChain, { spec }: DesiredChain): boolean {
  return comment === spec.comment && describeHook(base) === describeHook(spec.base);
}

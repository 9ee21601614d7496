/** Reads the kernel's state of a table at one moment. */
import { TimeSlice } from "../../base/time-slice.js";
import { sideBySide } from "../../base/side-by-side.js";
import { ChainFlag, SetFlag, TableFlag } from "../kernel/constants.js";
import { KernelError } from "../kernel/errors.js";
import type {
  BaseChain,
  ChainInfo,
  ElementBatch,
  Kernel,
  ObjectDump,
  RuleInfo,
  SetDump,
  SetInfo,
  TableRef,
} from "../kernel/kernel.js";
import type { TableFacts } from "./quirks.js";
import type { Announcements } from "./announcements.js";
import { anonymousContent, type ComparableRule, comparableRule, referencesOf } from "./diff.js";
import { commentOf } from "../bytes/names-and-comments.js";
import { keyOfType } from "../language/object-kinds.js";

/** The known state of our table in the kernel. */
export interface KernelState {
  /** Absent if there is no such table, or no usable one. */
  table: TableFacts | undefined;
  /** There is a table that has to be deleted before ours can be created. */
  inTheWay: boolean;
  /** Does not include bound chains (`jump { … }`): they are part of the rule that jumps to them. */
  readonly chains: Map<string, KernelChain>;
  /** Named sets only: anonymous sets are part of their rules. `count` is the number of elements at the read, if the kernel reports it. */
  readonly sets: Map<string, SetInfo & Pick<SetDump, "count">>;
  /** Named objects, by key ("counter web"). */
  readonly objects: Map<string, ObjectDump>;
  /** Sets with elements that a specification cannot express. They are created again. */
  readonly unusable: Set<string>;
}

export interface KernelChain {
  base: BaseChain | undefined;
  readonly comment: string | undefined;
  rules: readonly KernelRule[];
}

export interface KernelRule extends ComparableRule {
  /** Absent for a rule that was added since the chain was read. */
  readonly handle?: bigint;
}

/** The state of a table that does not exist. */
export function emptyState(): KernelState {
  return {
    table: undefined,
    inTheWay: false,
    chains: new Map(),
    sets: new Map(),
    objects: new Map(),
    unusable: new Set(),
  };
}

export function isDormant({ table }: KernelState): boolean {
  return table !== undefined && (table.flags & TableFlag.dormant) !== 0;
}

/** Whether packets traverse the table: a chain has a hook, and the table is not dormant. */
export function packetsComeBy(state: KernelState): boolean {
  return !isDormant(state) && [...state.chains.values()].some(({ base }) => base !== undefined);
}

/** During each attempt, another process may change the table. If no events tell the table, any change of the ruleset counts. */
const MAX_ATTEMPTS = 5;
/** Number of sets to read at a time. The kernel walks each on a thread of its own if a core is free. */
const READERS = 2;

export interface TableDump {
  readonly state: KernelState;
  readonly elements: ReadonlyMap<string, ElementBatch>;
  /** All changes up to this generation are included. */
  readonly since: number;
  /** The generation of the whole dump. Undefined if parts may be from different moments. */
  readonly generation: number | undefined;
}

interface DumpOptions {
  /** Whether rules of this chain will be compared. Anonymous sets of other chains are not read. */
  readonly wantsChain: (chain: string) => boolean;
  readonly wantsElements: (set: SetDump) => boolean;
  /** Chains that probably exist. If there are no others, the cost of reading does not grow with the chains of other tables. */
  readonly likelyChains?: Iterable<string>;
  /** Whether the table probably has named objects. They are read first then, so that the number of chains is known. */
  readonly hasObjects?: boolean;
}

/** @param announcements tell whether the table changed meanwhile. If they cannot, every change of the ruleset counts as one. */
export async function dumpTable(
  kernel: Kernel,
  ref: TableRef,
  announcements: Announcements,
  options: DumpOptions,
): Promise<TableDump> {
  for (let attempt = 1; ; attempt++) {
    const period = announcements.begin();
    try {
      const before = await kernel.generation();
      const dump = await unlessTorn(() => readOnce(kernel, ref, options));
      if (dump !== undefined) {
        const after = await kernel.generation();
        const same = before.id === after.id || (await period?.untouched(before.id, after.id)) === true;
        if (same) return { ...dump, since: after.id, generation: after.id };
        if (attempt >= MAX_ATTEMPTS) return { ...dump, since: before.id, generation: undefined };
      }
    } finally {
      period?.end();
    }
    if (attempt >= MAX_ATTEMPTS)
      throw new KernelError("interrupted", `table ${ref.table} changes faster than it can be read`, {
        action: "dump table",
      });
  }
}

/** Returns undefined if an object vanished between two requests, or changed throughout one. */
export async function unlessTorn<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof KernelError && (error.code === "not-found" || error.code === "interrupted")) return undefined;
    throw error;
  }
}

async function readOnce(
  kernel: Kernel,
  ref: TableRef,
  options: DumpOptions,
): Promise<Pick<TableDump, "state" | "elements">> {
  const state = emptyState();
  const elements = new Map<string, ElementBatch>();
  const table = (await kernel.tables(ref.family)).find((info) => info.table === ref.table);
  if (table === undefined) return { state, elements };
  const comment = commentOf(table.userdata);
  state.table = { flags: table.flags, owner: table.owner, comment };
  const sets = await kernel.sets(ref);
  const named = sets.filter((set) => (set.flags & SetFlag.anonymous) === 0);
  let found = options.hasObjects === true ? await kernel.objects(ref) : [];
  const others = table.use - named.length - found.length;
  const chains = await readChains(kernel, ref, others, options.likelyChains);
  if (chains.length < others && options.hasObjects !== true) found = await kernel.objects(ref);
  // Flowtables cannot be declared, so others' stay.
  for (const one of found) if (one.kind === "object") state.objects.set(keyOfType(one.objType, one.object), one);
  const rules = await kernel.rules(ref);
  const wanted = rules.filter((rule) => options.wantsChain(rule.chain));
  const anonymous = await readAnonymous(kernel, ref, wanted, sets);
  const byChain = Map.groupBy(rules, ({ chain }) => chain);
  const bound = new Set(chains.flatMap(({ chain, flags }) => ((flags & ChainFlag.binding) === 0 ? [] : chain)));
  const slice = new TimeSlice();
  for (const { chain, base, userdata } of chains) {
    if (slice.spent) await slice.yield();
    if (bound.has(chain)) continue;
    const its = (byChain.get(chain) ?? []).map((rule) => withBound(toKernelRule(rule, anonymous), bound, byChain));
    state.chains.set(chain, { base, comment: commentOf(userdata), rules: its });
  }
  for (const set of named) state.sets.set(set.set, set);
  await sideBySide(named.filter(options.wantsElements), READERS, async (set) => {
    elements.set(set.set, await kernel.elements(ref, set));
  });
  return { state, elements };
}

/**
 * Asks for the likely chains by name. Asking for all costs the kernel a walk over the chains of all tables, so it is the fallback.
 * @param most the table's use count without its named sets: the number of its chains, objects and flowtables.
 */
async function readChains(
  kernel: Kernel,
  ref: TableRef,
  most: number,
  likely: Iterable<string> = [],
): Promise<ChainInfo[]> {
  const names = [...likely];
  const found = names.length === 0 ? [] : await kernel.chains(ref, names);
  return found.length === most ? found : kernel.chains(ref);
}

/** Reads one chain's rules again, for their handles. */
export async function dumpRules(kernel: Kernel, ref: TableRef, chain: string): Promise<KernelRule[]> {
  const rules = await kernel.rules(ref, chain);
  const anonymous = await readAnonymous(kernel, ref, rules);
  return rules.map((rule) => toKernelRule(rule, anonymous));
}

/** Returns the content of anonymous sets, by name. */
async function readAnonymous(
  kernel: Kernel,
  ref: TableRef,
  rules: readonly RuleInfo[],
  sets?: readonly SetDump[],
): Promise<Map<string, string>> {
  const used = new Set(rules.flatMap((rule) => referencesOf(rule.exprs).sets));
  const contents = new Map<string, string>();
  if (used.size === 0) return contents;
  for (const set of sets ?? (await kernel.sets(ref))) {
    if ((set.flags & SetFlag.anonymous) === 0 || !used.has(set.set)) continue;
    contents.set(set.set, anonymousContent(set, await kernel.elements(ref, set)));
  }
  return contents;
}

/** A bound chain is part of the rule that jumps to it, so that rule also has the chain's references. */
function withBound(
  rule: KernelRule,
  bound: ReadonlySet<string>,
  rulesOf: ReadonlyMap<string, readonly RuleInfo[]>,
): KernelRule {
  const inside = rule.refs.chains.filter((chain) => bound.has(chain));
  if (inside.length === 0) return rule;
  const reached = new Set(inside);
  const sets = new Set(rule.refs.sets);
  const objects = new Set(rule.refs.objects);
  for (const chain of reached) {
    for (const { exprs } of bound.has(chain) ? (rulesOf.get(chain) ?? []) : []) {
      const refs = referencesOf(exprs);
      for (const to of refs.chains) reached.add(to);
      for (const set of refs.sets) sets.add(set);
      for (const object of refs.objects) objects.add(object);
    }
  }
  const refs = { chains: [...new Set([...rule.refs.chains, ...reached])], sets: [...sets], objects: [...objects] };
  return { ...rule, refs };
}

function toKernelRule({ handle, exprs, userdata }: RuleInfo, anonymous: ReadonlyMap<string, string>): KernelRule {
  return { handle, ...comparableRule(exprs, commentOf(userdata), ({ set }) => anonymous.get(set)) };
}

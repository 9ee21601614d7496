/**
 * The copy of our table as operations. It contains everything that the NAT hooks lead to. Its hooks run after all
 * others that translate: nf_nat calls NAT chains in the order of their priorities until one has set up the translation
 * (nf_nat_inet_fn). So the copy only serves connections that no other program translates.
 * Rules that reject and drop are not copied, because a service may have got endpoints since. Source ranges are copied,
 * and apply before the copy's own translation.
 */
import { SERVICE_PROTOCOL } from "../../base/protocols.js";
import { batchLayout, strideOf } from "../../nft/kernel/element-batch.js";
import {
  DataTypeId,
  IpProto,
  LookupFlag,
  MetaKey,
  register,
  SetFlag,
  VERDICT_REGISTER,
} from "../../nft/kernel/constants.js";
import type {
  BaseChain,
  ElementBatch,
  Expr,
  Op,
  RuleInfo,
  SetDump,
  SetInfo,
  TableRef,
} from "../../nft/kernel/kernel.js";
import { ChainName, SetName } from "../../ruleset/names.js";
import { commentData } from "../../nft/engine-exports.js";
import { holdsVerdicts, type Reached, setOf, type SourceTable } from "./source-table.js";

/** Distance to the hooks of other programs, because some place theirs right after the usual priorities. */
const PRIORITY_GAP = 5;
/** The set whose elements' timeouts determine how long the copy is active. */
export const TIME_LIMIT = "time-limit";
const SOURCE_RANGES = "source-ranges";
const COMMENT = "copy that nft-proxier handover left; cleanup and the next start remove it";
/** How much longer than the time limit the elements of services stay, ms, so that none disappears before it. */
const MARGIN_MS = 60_000;

type CopiedRule = Pick<RuleInfo, "exprs" | "userdata">;

interface HookedChain {
  readonly chain: string;
  readonly base: BaseChain;
  readonly rules: readonly CopiedRule[];
}

/** The parts of a table to copy: its base chains, and the rules that check source ranges. */
export interface Outline {
  readonly hooked: readonly HookedChain[];
  readonly sourceRanges: readonly CopiedRule[];
}

/** Returns undefined if packets do not reach this table, or if it is not ours. */
export function outlineOf(source: SourceTable): Outline | undefined {
  const ownRules = (chain: string): readonly RuleInfo[] => source.rules.get(chain) ?? [];
  const uses = (set: string) => (rule: CopiedRule) => rule.exprs.some((expr) => setOf(expr) === set);
  if (!ownRules(ChainName.services).some(uses(SetName.services))) return undefined;
  const early = [ChainName.filterPreroutingPreDnat, ChainName.filterOutputPreDnat];
  const sourceRanges =
    early.map((chain) => ownRules(chain).filter(uses(SetName.firewallIPs))).find((rules) => rules.length > 0) ?? [];
  const hooked: HookedChain[] = [];
  const add = (chain: string, rules: (own: readonly RuleInfo[]) => readonly CopiedRule[]): boolean => {
    const base = source.chains.get(chain)?.base;
    const copied = base === undefined ? [] : rules(ownRules(chain));
    if (base === undefined || copied.length === 0) return false;
    hooked.push({ chain, base: { ...base, priority: base.priority + PRIORITY_GAP }, rules: copied });
    return true;
  };
  const toService = (own: readonly CopiedRule[]): CopiedRule[] => [
    timeLimit,
    ...(sourceRanges.length === 0 ? [] : [jumpTo(SOURCE_RANGES)]),
    ...own,
  ];
  const translates = add(ChainName.natPrerouting, toService) && add(ChainName.natOutput, toService);
  if (!translates || !add(ChainName.natPostrouting, (own) => [timeLimit, ...own])) return undefined;
  // Node ports on loopback (ruleset/localhost.ts): without these rules, their open connections break.
  add(ChainName.filterOutputPreDnat, (own) => own.filter(rewritesHeader));
  add(ChainName.localhostPrerouting, (own) => own);
  add(ChainName.localhostInput, (own) => own);
  return { hooked, sourceRanges };
}

/** All rules from which the copy is made. */
export function rulesOf({ hooked, sourceRanges }: Outline): readonly CopiedRule[] {
  return [...hooked.flatMap(({ rules }) => rules), ...sourceRanges];
}

const rewritesHeader = ({ exprs }: CopiedRule): boolean =>
  exprs.some((expr) => expr.type === "payload" && expr.sreg !== undefined);

/**
 * If the set is empty, packets pass unchanged. Its elements are the services' protocols, a form that nft can read and
 * print.
 */
const timeLimit: CopiedRule = {
  exprs: [
    { type: "meta", key: MetaKey.l4proto, dreg: register(0) },
    { type: "lookup", set: TIME_LIMIT, sreg: register(0), flags: LookupFlag.invert },
    { type: "immediate", dreg: VERDICT_REGISTER, data: { verdict: "accept" } },
  ],
};

const jumpTo = (chain: string): CopiedRule => ({
  exprs: [{ type: "immediate", dreg: VERDICT_REGISTER, data: { verdict: "jump", chain } }],
});

interface CopyOptions {
  /** The table to write to. */
  readonly to: TableRef;
  /** The name of a set that only this copy has. Each transaction uses it to check that the table is its own. */
  readonly mark: string;
  readonly outline: Outline;
  readonly source: SourceTable;
  readonly reached: Reached;
  /** How long the copy is active, ms. */
  readonly forMs: number;
}

/** Makes its transaction fail with "not-found" if the table is gone or belongs to another copy. */
export function ownOp({ to, mark }: Pick<CopyOptions, "to" | "mark">): Op {
  const shape = { keyLen: 1, dataLen: 0 } as const;
  const bytes = new Uint8Array(strideOf(shape));
  bytes[0] = IpProto.tcp;
  return { op: "add", kind: "elements", set: mark, elements: { ...shape, count: 1, bytes }, ...to };
}

/** Makes its transaction fail with EEXIST if the copy is active. */
export function inactiveOp(to: TableRef): Op {
  return { op: "create", kind: "elements", set: TIME_LIMIT, elements: timeLimitElements(1), ...to };
}

/** Creates the copy without its elements and hooks. */
export function structureOps({ to, mark, outline, source, reached, forMs }: CopyOptions): Op[] {
  const sets = [...reached.sets.keys()].flatMap((name) => source.sets.get(name) ?? []);
  const chains = [...reached.chains].flatMap((name) => source.chains.get(name) ?? []);
  const guards = outline.sourceRanges;
  const comment = commentData(COMMENT);
  return [
    { op: "add", kind: "table", ...to, userdata: comment },
    { op: "add", kind: "set", set: mark, ...protocols(), ...to },
    { op: "add", kind: "set", ...timeLimitSet(), ...to },
    ...sets.map((set): Op => ({ op: "add", kind: "set", ...copyOfSet(set, forMs + MARGIN_MS), ...to })),
    ...chains.map(({ chain, userdata }): Op => ({ op: "add", kind: "chain", chain, userdata, ...to })),
    ...chains.flatMap(({ chain }) => ruleOps(to, chain, source.rules.get(chain) ?? [])),
    ...(guards.length === 0 ? [] : [{ op: "add", kind: "chain", chain: SOURCE_RANGES, ...to } satisfies Op]),
    ...ruleOps(to, SOURCE_RANGES, guards),
  ];
}

/** Adds the elements, `most` at a time. */
export function* elementOps({ to, mark, reached }: CopyOptions, most: number): Generator<Op[]> {
  const own = ownOp({ to, mark });
  let ops: Op[] = [own];
  let free = most;
  for (const [name, batch] of reached.sets) {
    if (batch === undefined) continue;
    for (let from = 0; from < batch.count;) {
      const elements = sliceOf(batch, from, Math.min(free, batch.count - from));
      ops.push({ op: "add", kind: "elements", set: copiedName(name), elements, ...to });
      from += elements.count;
      free -= elements.count;
      if (free > 0) continue;
      yield ops;
      ops = [own];
      free = most;
    }
  }
  if (ops.length > 1) yield ops;
}

/** Makes the copy active for `forMs`. */
export function hookOps({ to, mark, outline, forMs }: CopyOptions): Op[] {
  return [
    ownOp({ to, mark }),
    { op: "add", kind: "elements", set: TIME_LIMIT, elements: timeLimitElements(forMs), ...to },
    ...outline.hooked.flatMap(({ chain, base, rules }): Op[] => [
      { op: "add", kind: "chain", chain, base, ...to },
      ...ruleOps(to, chain, rules),
    ]),
  ];
}

function ruleOps(to: TableRef, chain: string, rules: readonly CopiedRule[]): Op[] {
  return rules.map(({ exprs, userdata }): Op => ({
    op: "add",
    kind: "rule",
    chain,
    exprs: exprs.map(copyOfExpr),
    userdata,
    ...to,
  }));
}

function copyOfExpr(expr: Expr): Expr {
  if (expr.type === "lookup") return { ...expr, set: copiedName(expr.set) };
  if (expr.type !== "dynset" || expr.timeout !== 0n) return expr;
  // Dumped for sets without timeouts as well, but rejected for those.
  const { timeout: _, ...rest } = expr;
  return rest;
}

/** An anonymous set gets a name in the copy, so that its elements can also be added in pieces. */
function copiedName(set: string): string {
  return set.startsWith("__") ? `of-rule-${set.slice(2)}` : set;
}

/**
 * All elements except verdicts and ranges expire, so that a copy that is never removed keeps next to no memory.
 * Counters are not copied.
 */
function copyOfSet({ handle: _, exprs, ...set }: SetDump, goesAfterMs: number): SetInfo {
  const dropped = SetFlag.anonymous | SetFlag.constant | (exprs === undefined ? 0 : SetFlag.expr);
  const cannotGo = SetFlag.eval | SetFlag.interval | SetFlag.timeout;
  const goes = (set.flags & cannotGo) === 0 && !holdsVerdicts(set);
  return {
    ...set,
    set: copiedName(set.set),
    flags: (set.flags & ~dropped) | (goes ? SetFlag.timeout : 0),
    // Not set to undefined, so that a set with a timeout of its own keeps it.
    ...(goes && { timeout: BigInt(goesAfterMs) }),
  };
}

const PROTOCOLS = Object.values(SERVICE_PROTOCOL);

function protocols(): Omit<SetInfo, "set"> {
  return { flags: 0, keyType: DataTypeId.inet_proto, keyLen: 1 };
}

function timeLimitSet(): SetInfo {
  return { set: TIME_LIMIT, ...protocols(), flags: SetFlag.timeout };
}

function timeLimitElements(forMs: number): ElementBatch {
  const shape = { keyLen: 1, dataLen: 0, timeouts: true } as const;
  const { stride, timeout } = batchLayout(shape);
  const bytes = new Uint8Array(PROTOCOLS.length * stride);
  PROTOCOLS.forEach((protocol, index) => {
    bytes[index * stride] = protocol;
    bytes.set(new Uint8Array(BigUint64Array.of(BigInt(Math.ceil(forMs))).buffer), index * stride + timeout);
  });
  return { ...shape, count: PROTOCOLS.length, bytes };
}

/** Omits the comments that nft gives elements that it loads, because a commit does not accept them. */
function sliceOf({ extras: _, ...batch }: ElementBatch, from: number, count: number): ElementBatch {
  const stride = strideOf(batch);
  return { ...batch, count, bytes: batch.bytes.subarray(from * stride, (from + count) * stride) };
}

/**
 * The copy as operations. It has what the NAT hooks lead to, and its hooks come behind all others that translate: nf_nat asks NAT chains in the
 * order of their priorities until one has set up the translation (nf_nat_inet_fn), so that the copy serves what no other program does.
 * What rejects and drops is not in it, as a service may have got endpoints since; but source ranges are, ahead of its own translation.
 */
import { SERVICE_PROTOCOL } from "../../base/protocols.js";
import { batchLayout, strideOf } from "../../netlink/element-batch.js";
import {
  DataTypeId,
  IpProto,
  LookupFlag,
  MetaKey,
  register,
  SetFlag,
  VERDICT_REGISTER,
} from "../../netlink/constants.js";
import type { BaseChain, ElementBatch, Expr, Op, RuleInfo, SetDump, SetInfo, TableRef } from "../../netlink/kernel.js";
import { ChainName, SetName } from "../../ruleset/names.js";
import { commentData } from "../../table/table-exports.js";
import { holdsVerdicts, type Reached, setOf, type SourceTable } from "./source.js";

/** How far behind the hooks of other programs: some place theirs right behind the usual priorities. */
const BEHIND = 5;
/** The set that says how long the copy is in force, by its elements' timeouts. */
export const TIME_LIMIT = "time-limit";
const SOURCE_RANGES = "source-ranges";
const COMMENT = "copy that nft-proxier handover left; cleanup and the next start remove it";
/** Elements of services go that much behind the time limit, ms: until then all of them are there. */
const MARGIN_MS = 60_000;

type CopiedRule = Pick<RuleInfo, "exprs" | "userdata">;

interface HookedChain {
  readonly chain: string;
  readonly base: BaseChain;
  readonly rules: readonly CopiedRule[];
}

/** What of a table is copied: its base chains, and the rules behind source ranges. */
export interface Outline {
  readonly hooked: readonly HookedChain[];
  readonly sourceRanges: readonly CopiedRule[];
}

/** Undefined: packets do not come by this table, or it is not of our making. */
export function outlineOf(source: SourceTable): Outline | undefined {
  const ownRules = (chain: string): readonly RuleInfo[] => source.rules.get(chain) ?? [];
  const looksIn = (set: string) => (rule: CopiedRule) => rule.exprs.some((expr) => setOf(expr) === set);
  if (!ownRules(ChainName.services).some(looksIn(SetName.services))) return undefined;
  const early = [ChainName.filterPreroutingPreDnat, ChainName.filterOutputPreDnat];
  const sourceRanges =
    early.map((chain) => ownRules(chain).filter(looksIn(SetName.firewallIPs))).find((rules) => rules.length > 0) ?? [];
  const hooked: HookedChain[] = [];
  const add = (chain: string, rules: (own: readonly RuleInfo[]) => readonly CopiedRule[]): boolean => {
    const base = source.chains.get(chain)?.base;
    const copied = base === undefined ? [] : rules(ownRules(chain));
    if (base === undefined || copied.length === 0) return false;
    hooked.push({ chain, base: { ...base, priority: base.priority + BEHIND }, rules: copied });
    return true;
  };
  const toService = (own: readonly CopiedRule[]): CopiedRule[] => [
    timeLimit,
    ...(sourceRanges.length === 0 ? [] : [jumpTo(SOURCE_RANGES)]),
    ...own,
  ];
  const translates = add(ChainName.natPrerouting, toService) && add(ChainName.natOutput, toService);
  if (!translates || !add(ChainName.natPostrouting, (own) => [timeLimit, ...own])) return undefined;
  // Node ports on loopback (ruleset/localhost.ts): without these their open connections end.
  add(ChainName.filterOutputPreDnat, (own) => own.filter(rewritesHeader));
  add(ChainName.localhostPrerouting, (own) => own);
  add(ChainName.localhostInput, (own) => own);
  return { hooked, sourceRanges };
}

/** All rules that decide what is copied. */
export function rulesOf({ hooked, sourceRanges }: Outline): readonly CopiedRule[] {
  return [...hooked.flatMap(({ rules }) => rules), ...sourceRanges];
}

const rewritesHeader = ({ exprs }: CopiedRule): boolean =>
  exprs.some((expr) => expr.type === "payload" && expr.sreg !== undefined);

/** When the set is empty, packets pass. The protocols of services are its elements: nft reads and prints that. */
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

export interface CopyOptions {
  /** Where it is written to. */
  readonly to: TableRef;
  /** A set that only this copy has: by it each transaction knows the table for its own. */
  readonly mark: string;
  readonly outline: Outline;
  readonly source: SourceTable;
  readonly reached: Reached;
  /** How long it is in force, ms. */
  readonly forMs: number;
}

/** Refused as "not-found" when the table is another copy's, or gone: so is all that is committed with it. */
export function ownOp({ to, mark }: Pick<CopyOptions, "to" | "mark">): Op {
  const shape = { keyLen: 1, dataLen: 0 } as const;
  const bytes = new Uint8Array(strideOf(shape));
  bytes[0] = IpProto.tcp;
  return { op: "add", kind: "elements", set: mark, elements: { ...shape, count: 1, bytes }, ...to };
}

/** Refused as EEXIST when the copy is in force, and all that is committed with it. */
export function notInForceOp(to: TableRef): Op {
  return { op: "create", kind: "elements", set: TIME_LIMIT, elements: timeLimitElements(1), ...to };
}

/** The copy but for its elements and its hooks. */
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

/** The elements, `most` at a time. */
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

/** From here on packets come by, for `forMs`. */
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
  // Dumped for sets without timeouts as well, and refused for those.
  const { timeout: _, ...rest } = expr;
  return rest;
}

/** An anonymous set is one with a name in the copy, so that its elements can go in pieces, too. */
function copiedName(set: string): string {
  return set.startsWith("__") ? `of-rule-${set.slice(2)}` : set;
}

/**
 * All elements but verdicts and ranges go by themselves: a copy that is never removed keeps next to no memory. Counters are not copied.
 */
function copyOfSet({ handle: _, exprs, ...set }: SetDump, goesAfterMs: number): SetInfo {
  const dropped = SetFlag.anonymous | SetFlag.constant | (exprs === undefined ? 0 : SetFlag.expr);
  const cannotGo = SetFlag.eval | SetFlag.interval | SetFlag.timeout;
  const goes = (set.flags & cannotGo) === 0 && !holdsVerdicts(set);
  return {
    ...set,
    set: copiedName(set.set),
    flags: (set.flags & ~dropped) | (goes ? SetFlag.timeout : 0),
    // Not undefined: a set that has a timeout of its own keeps it.
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

/** Without comments, which nft gives elements that it loads: a commit takes none. */
function sliceOf({ extras: _, ...batch }: ElementBatch, from: number, count: number): ElementBatch {
  const stride = strideOf(batch);
  return { ...batch, count, bytes: batch.bytes.subarray(from * stride, (from + count) * stride) };
}

/**
 * Leaves a copy of what is in force for the program that comes next: kube-proxy's iptables mode deletes the table `kube-proxy` at its start, a
 * second before its own rules are in force, and a connection that is opened in between would find no service. The copy is in a table that
 * kube-proxy does not know, made of the kernel's own state, and ends with a time limit that the kernel keeps: nothing of ours runs then.
 */
import { randomBytes } from "node:crypto";

import { batchLayout } from "../../netlink/element-batch.js";
import { KernelError } from "../../netlink/errors.js";
import type { Kernel, Op, SetDump, TableRef } from "../../netlink/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import { HANDOVER_TABLE, SetName, TABLE_NAME } from "../../ruleset/names.js";
import {
  elementOps,
  hookOps,
  notInForceOp,
  outlineOf,
  type Outline,
  ownOp,
  rulesOf,
  structureOps,
  TIME_LIMIT,
} from "./copy.js";
import { type Reached, readReached, readSource, type SourceTable } from "./source.js";

/** Elements of a transaction, as of first loads (table/sync/make-before-break.ts). */
const PIECE_ELEMENTS = 16_384;
/** Services change while they are read. After so many attempts the copy is of more moments than one: its rules cope with that. */
const MOST_ATTEMPTS = 3;
/** Times that a copy is made when starts remove it before it is complete: each start does so once. */
const MOST_COPIES = 5;
/** What the names of sets that tell one copy from another begin with. */
const MARK = "copy-";

export interface HandoverOptions {
  readonly kernel: Kernel;
  readonly families: readonly IpFamily[];
  /** How long the copy serves new connections, ms. */
  readonly forMs: number;
}

/** What is in force in one family now. */
export interface Handover {
  readonly family: IpFamily;
  /** VIPs with a protocol and port each. */
  readonly vips: number;
  readonly nodePorts: number;
  /** Of all sets and maps. */
  readonly elements: number;
  /** When it ends, Unix ms. */
  readonly until: number;
}

/** Another handover, or a start of the program, has taken the copy away. */
export class CopyReplaced extends Error {
  override readonly name = "CopyReplaced";
  constructor(family: IpFamily, options?: ErrorOptions) {
    super(`the table ${family} ${HANDOVER_TABLE} was replaced or removed by another program`, options);
  }
}

/** What became of each family, on its own. */
export interface HandoverResult {
  /** Families that have a copy in force. A family without a table of ours has none. */
  readonly copies: readonly Handover[];
  /** Nothing of this family's copy is left, unless another handover's copy has taken its place. */
  readonly failures: readonly HandoverFailure[];
}

export interface HandoverFailure {
  readonly family: IpFamily;
  /** KernelError, CopyReplaced, or what else was thrown. */
  readonly error: unknown;
}

/**
 * Copies each family's table, in place of a copy that is there: meanwhile the table itself serves. A start that removes a copy before it is
 * complete makes this copy again. Never rejects.
 */
export async function handOver(options: HandoverOptions): Promise<HandoverResult> {
  const { kernel, families } = options;
  const made: Handover[] = [];
  const { failures } = await eachFamily(families, async (family) => {
    const copy = await handOverFamily(options, family);
    if (copy !== undefined) made.push(copy);
  });
  // An older version's start removes every copy, however new.
  const standing = await eachFamily(
    made.map(({ family }) => family),
    async (family) => {
      if (((await handoverLeft(kernel, family)) ?? 0) === 0) throw new CopyReplaced(family);
    },
  );
  const copies = made.filter(({ family }) => standing.done.includes(family));
  return { copies, failures: [...failures, ...standing.failures] };
}

/** A failure in one family does not stop the other. */
async function eachFamily(
  families: readonly IpFamily[],
  work: (family: IpFamily) => Promise<void>,
): Promise<{ readonly done: readonly IpFamily[]; readonly failures: readonly HandoverFailure[] }> {
  const done: IpFamily[] = [];
  const failures: HandoverFailure[] = [];
  for (const family of families) {
    try {
      await work(family);
      done.push(family);
    } catch (error) {
      failures.push({ family, error });
    }
  }
  return { done, failures };
}

async function handOverFamily(options: HandoverOptions, family: IpFamily): Promise<Handover | undefined> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await copyTable(options, family);
    } catch (error) {
      // The copy of a later handover stays.
      const isGone = error instanceof CopyReplaced && (await handoverLeft(options.kernel, family)) === undefined;
      if (!isGone || attempt >= MOST_COPIES) throw error;
    }
  }
}

/** Undefined: the family has no table of ours. */
async function copyTable({ kernel, forMs }: HandoverOptions, family: IpFamily): Promise<Handover | undefined> {
  const tables = await kernel.tables(family);
  const copy = tables.some(({ table }) => table === TABLE_NAME) ? await readCopy(kernel, family) : undefined;
  if (copy === undefined) return undefined;
  const to = { family, table: HANDOVER_TABLE };
  const options = { ...copy, to, mark: `${MARK}${randomBytes(4).toString("hex")}`, forMs };
  await kernel.commit([...withoutCopy(family), ...structureOps(options)]);
  try {
    for (const ops of elementOps(options, PIECE_ELEMENTS)) await kernel.commit(ops);
    await kernel.commit(hookOps(options));
  } catch (error) {
    await kernel.commit([ownOp(options), { op: "delete", kind: "table", ...to }]).catch(() => undefined);
    throw isAnothers(error) ? new CopyReplaced(family, { cause: error }) : error;
  }
  const count = (set: string): number => copy.reached.sets.get(set)?.count ?? 0;
  const elements = [...copy.reached.sets.values()].reduce((sum, batch) => sum + (batch?.count ?? 0), 0);
  const until = Date.now() + forMs;
  return { family, vips: count(SetName.services), nodePorts: count(SetName.nodePorts), elements, until };
}

/** Deletes the family's copy; does nothing where there is none, as another program may remove it at any time. */
function withoutCopy(family: IpFamily): Op[] {
  const table = { kind: "table", family, table: HANDOVER_TABLE } as const;
  return [
    { op: "add", ...table },
    { op: "delete", ...table },
  ];
}

/** Of a transaction that begins with ownOp. */
function isAnothers(error: unknown): boolean {
  return error instanceof KernelError && error.faults.some(({ op, errno }) => op === 0 && errno === "ENOENT");
}

interface Copy {
  readonly source: SourceTable;
  readonly outline: Outline;
  readonly reached: Reached;
}

/** Undefined: the table is none of ours, or not in force. */
async function readCopy(kernel: Kernel, family: IpFamily): Promise<Copy | undefined> {
  for (let attempt = 1; ; attempt++) {
    const before = await kernel.generation();
    try {
      const source = await readSource(kernel, { family, table: TABLE_NAME });
      const outline = outlineOf(source);
      if (outline === undefined) return undefined;
      const reached = await readReached(kernel, source, rulesOf(outline));
      const same = (await kernel.generation()).id === before.id;
      if (same || attempt >= MOST_ATTEMPTS) return { source, outline, reached };
    } catch (error) {
      const torn = error instanceof KernelError && (error.code === "not-found" || error.code === "interrupted");
      if (!torn || attempt >= MOST_ATTEMPTS) throw error;
    }
  }
}

/** The families that had a copy, and those whose copy could not be removed. */
export interface Removal {
  readonly removed: readonly IpFamily[];
  readonly failures: readonly HandoverFailure[];
}

/** Removes the copies of these families. Never rejects. */
export async function removeHandover(kernel: Kernel, families: readonly IpFamily[]): Promise<Removal> {
  const removed: IpFamily[] = [];
  const { failures } = await eachFamily(families, async (family) => {
    if (!(await hasCopy(kernel, family))) return;
    await kernel.commit(withoutCopy(family));
    removed.push(family);
  });
  return { removed, failures };
}

/**
 * Removes the family's copy unless it came into force within the last `runningMs()`, how long this process has run: then somebody
 * made it for what comes after this process. A copy that is not complete is removed: its handover makes it again. Throws KernelError.
 */
export async function removeFormerHandover(
  kernel: Kernel,
  family: IpFamily,
  runningMs: () => number,
): Promise<"none" | "removed" | "newer"> {
  const to = { family, table: HANDOVER_TABLE };
  if (!(await hasCopy(kernel, family))) return "none";
  try {
    const sets = await kernel.sets(to);
    const limits = await readLimits(kernel, to, sets);
    const age = Math.max(...limits.map(({ timeout, expiration }) => timeout - expiration));
    if (limits.length > 0 && age <= runningMs()) return "newer";
    const mark = sets.find(({ set }) => set.startsWith(MARK))?.set;
    await kernel.commit([
      ...(mark === undefined ? [] : [ownOp({ to, mark })]),
      ...(limits.length > 0 ? [] : [notInForceOp(to)]),
      { op: "delete", kind: "table", ...to },
    ]);
    return "removed";
  } catch (error) {
    // Another program has removed the copy, or a handover has made one, since.
    if (!isMoved(error)) throw error;
    return (await hasCopy(kernel, family)) ? "newer" : "none";
  }
}

function isMoved(error: unknown): boolean {
  if (!(error instanceof KernelError)) return false;
  return error.code === "not-found" || error.faults.some(({ errno }) => errno === "ENOENT" || errno === "EEXIST");
}

async function hasCopy(kernel: Kernel, family: IpFamily): Promise<boolean> {
  return (await kernel.tables(family)).some(({ table }) => table === HANDOVER_TABLE);
}

/** How long a family's copy still serves new connections, ms; 0: it has expired, or is not complete. Undefined: there is none. Throws KernelError. */
export async function handoverLeft(kernel: Kernel, family: IpFamily): Promise<number | undefined> {
  if (!(await hasCopy(kernel, family))) return undefined;
  const to = { family, table: HANDOVER_TABLE };
  const limits = await readLimits(kernel, to, await kernel.sets(to));
  return Math.max(0, ...limits.map(({ expiration }) => expiration));
}

/** Of the elements that say how long the copy is in force: how long in all, and from now on, ms. Empty: it has expired, or is not complete. */
async function readLimits(kernel: Kernel, to: TableRef, sets: readonly SetDump[]): Promise<TimeLimit[]> {
  const set = sets.find(({ set }) => set === TIME_LIMIT);
  if (set === undefined) return [];
  const batch = await kernel.elements(to, set);
  const { stride, timeout, expiration } = batchLayout(batch);
  if (timeout < 0 || expiration < 0) return [];
  const view = Buffer.from(batch.bytes.buffer, batch.bytes.byteOffset, batch.bytes.byteLength);
  const at = (offset: number): number => {
    const bytes = Uint8Array.from(view.subarray(offset, offset + 8));
    return Number(new BigUint64Array(bytes.buffer)[0]);
  };
  return Array.from({ length: batch.count }, (_, i) => {
    return { timeout: at(i * stride + timeout), expiration: at(i * stride + expiration) };
  });
}

interface TimeLimit {
  readonly timeout: number;
  readonly expiration: number;
}

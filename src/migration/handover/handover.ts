/**
 * Leaves a copy of the active rules for the next program. kube-proxy's iptables mode deletes the table `kube-proxy` at
 * its start, a second before its own rules are active. A connection opened in between would find no service. The copy
 * is made from the kernel's own state, in a table that kube-proxy does not know. The kernel enforces its time limit,
 * because none of our processes runs then.
 */
import { randomBytes } from "node:crypto";

import { batchLayout } from "../../nft/kernel/element-batch.js";
import { KernelError } from "../../nft/kernel/errors.js";
import type { Kernel, Op, SetDump, TableRef } from "../../nft/kernel/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import { HANDOVER_TABLE, SetName, TABLE_NAME } from "../../ruleset/names.js";
import {
  elementOps,
  hookOps,
  inactiveOp,
  outlineOf,
  type Outline,
  ownOp,
  rulesOf,
  structureOps,
  TIME_LIMIT,
} from "./copy.js";
import { type Reached, readReached, readSource, type SourceTable } from "./source-table.js";

/** Elements in one transaction, as in first loads (nft/sync/make-before-break.ts). */
const PIECE_ELEMENTS = 16_384;
/**
 * Number of attempts to read a consistent state, because services change meanwhile. The last attempt is used in any
 * case: the rules tolerate a mix of states.
 */
const MOST_ATTEMPTS = 3;
/** Number of attempts if starting processes remove the copy before it is complete. Each start does so once. */
const MOST_COPIES = 5;
/** Prefix of the sets that distinguish one copy from another. */
const MARK = "copy-";

interface HandoverOptions {
  readonly kernel: Kernel;
  readonly families: readonly IpFamily[];
  /** How long the copy serves new connections, ms. */
  readonly forMs: number;
}

/** The active copy of one family. */
interface Handover {
  readonly family: IpFamily;
  /** VIPs with a protocol and port each. */
  readonly vips: number;
  readonly nodePorts: number;
  /** Elements in all sets and maps. */
  readonly elements: number;
  /** Unix time at which the copy ends, ms. */
  readonly until: number;
}

/** Another handover, or a start of the program, has replaced or removed the copy. */
export class CopyReplaced extends Error {
  override readonly name = "CopyReplaced";
  constructor(family: IpFamily, options?: ErrorOptions) {
    super(`the table ${family} ${HANDOVER_TABLE} was replaced or removed by another program`, options);
  }
}

/** The result per family. */
interface HandoverResult {
  /** Families with an active copy. A family without a table of ours has none. */
  readonly copies: readonly Handover[];
  /** Families that failed. Nothing of their copies is left, unless another handover's copy has replaced them. */
  readonly failures: readonly HandoverFailure[];
}

export interface HandoverFailure {
  readonly family: IpFamily;
  /** KernelError, CopyReplaced, or any other error. */
  readonly error: unknown;
}

/**
 * Copies each family's table and replaces an existing copy. Meanwhile the original table serves. If a starting process
 * removes an incomplete copy, makes it again. Never rejects.
 */
export async function handOver(options: HandoverOptions): Promise<HandoverResult> {
  const { kernel, families } = options;
  const made: Handover[] = [];
  const { failures } = await eachFamily(families, async (family) => {
    const copy = await handOverFamily(options, family);
    if (copy !== undefined) made.push(copy);
  });
  // When an older version starts, it removes every copy, even a new one.
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
      // Leaves the copy of a later handover.
      const isGone = error instanceof CopyReplaced && (await handoverLeft(options.kernel, family)) === undefined;
      if (!isGone || attempt >= MOST_COPIES) throw error;
    }
  }
}

/** Returns undefined if the family has no table of ours. */
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

/** Deletes the family's copy. Succeeds if there is none, because another program may remove it at any time. */
function withoutCopy(family: IpFamily): Op[] {
  const table = { kind: "table", family, table: HANDOVER_TABLE } as const;
  return [
    { op: "add", ...table },
    { op: "delete", ...table },
  ];
}

/** Whether a transaction that begins with ownOp failed because the copy belongs to another handover. */
function isAnothers(error: unknown): boolean {
  return error instanceof KernelError && error.faults.some(({ op, errno }) => op === 0 && errno === "ENOENT");
}

interface Copy {
  readonly source: SourceTable;
  readonly outline: Outline;
  readonly reached: Reached;
}

/** Returns undefined if the table is not ours or not active. */
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

/** Families that had a copy, and those whose copy could not be removed. */
interface Removal {
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
 * Removes the family's copy, unless it became active within the last `runningMs()`, the age of this process. Such a
 * copy was made for the time after this process. Removes an incomplete copy, since its handover makes it again. Throws
 * KernelError.
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
      ...(limits.length > 0 ? [] : [inactiveOp(to)]),
      { op: "delete", kind: "table", ...to },
    ]);
    return "removed";
  } catch (error) {
    // Meanwhile another program has removed the copy, or a handover has made one.
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

/**
 * Returns how long a family's copy still serves new connections, ms. Returns 0 if it has expired or is incomplete, and
 * undefined if there is none. Throws KernelError.
 */
export async function handoverLeft(kernel: Kernel, family: IpFamily): Promise<number | undefined> {
  if (!(await hasCopy(kernel, family))) return undefined;
  const to = { family, table: HANDOVER_TABLE };
  const limits = await readLimits(kernel, to, await kernel.sets(to));
  return Math.max(0, ...limits.map(({ expiration }) => expiration));
}

/**
 * Reads, from the elements of the time limit, how long the copy is active in total and from now on, ms. Returns an
 * empty list if it has expired or is incomplete.
 */
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

/**
 * Leaves a copy of what is in force for the program that comes next: kube-proxy's iptables mode deletes the table `kube-proxy` at its start, a
 * second before its own rules are in force, and a connection that is opened in between would find no service. The copy is in a table that
 * kube-proxy does not know, made of the kernel's own state, and ends with a time limit that the kernel keeps: nothing of ours runs then.
 */
import { randomBytes } from "node:crypto";

import { batchLayout } from "../kernel/element-batch.js";
import { KernelError } from "../kernel/errors.js";
import type { Kernel, Op } from "../kernel/types.js";
import type { IpFamily } from "../model/types.js";
import { HANDOVER_TABLE, SetName, TABLE_NAME } from "../ruleset/names.js";
import { elementOps, hookOps, outlineOf, type Outline, ownOp, rulesOf, structureOps, TIME_LIMIT } from "./copy.js";
import { type Reached, readReached, readSource, type SourceTable } from "./source.js";

/** Elements of a transaction, as of first loads (table/sync/make-before-break.ts). */
const PIECE_ELEMENTS = 16_384;
/** Services change while they are read. After so many attempts the copy is of more moments than one: its rules cope with that. */
const MOST_ATTEMPTS = 3;

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

/** Another handover, or a start of the program, has taken the copy away before it was complete. */
export class CopyReplaced extends Error {
  override readonly name = "CopyReplaced";
  constructor(family: IpFamily, options: ErrorOptions) {
    super(`the table ${family} ${HANDOVER_TABLE} was replaced or removed before it was complete`, options);
  }
}

/**
 * Copies each family's table, in place of a copy that is there: meanwhile the table itself serves. Families without a table of ours are not in the
 * result. Throws KernelError, or CopyReplaced; then nothing of that family's copy is left, and another's is untouched.
 */
export async function handOver({ kernel, families, forMs }: HandoverOptions): Promise<Handover[]> {
  const done: Handover[] = [];
  for (const family of families) {
    const tables = (await kernel.tables(family)).map(({ table }) => table);
    const copy = tables.includes(TABLE_NAME) ? await readCopy(kernel, family) : undefined;
    if (copy === undefined) continue;
    const to = { family, table: HANDOVER_TABLE };
    const options = { ...copy, to, mark: `copy-${randomBytes(4).toString("hex")}`, forMs };
    const former: Op[] = tables.includes(HANDOVER_TABLE) ? [{ op: "delete", kind: "table", ...to }] : [];
    await kernel.commit([...former, ...structureOps(options)]);
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
    done.push({ family, vips: count(SetName.services), nodePorts: count(SetName.nodePorts), elements, until });
  }
  return done;
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

/** Removes the copies of these families. Returns those that had one. Throws KernelError. */
export async function removeHandover(kernel: Kernel, families: readonly IpFamily[]): Promise<IpFamily[]> {
  const removed: IpFamily[] = [];
  for (const family of families) {
    if (!(await kernel.tables(family)).some(({ table }) => table === HANDOVER_TABLE)) continue;
    await kernel.commit([{ op: "delete", kind: "table", family, table: HANDOVER_TABLE }]);
    removed.push(family);
  }
  return removed;
}

/** How long a family's copy still serves new connections, ms; 0: it has expired, or was never finished. Undefined: there is none. Throws KernelError. */
export async function handoverLeft(kernel: Kernel, family: IpFamily): Promise<number | undefined> {
  const ref = { family, table: HANDOVER_TABLE };
  if (!(await kernel.tables(family)).some(({ table }) => table === HANDOVER_TABLE)) return undefined;
  const set = (await kernel.sets(ref)).find(({ set }) => set === TIME_LIMIT);
  if (set === undefined) return 0;
  const batch = await kernel.elements(ref, set);
  const { stride, expiration } = batchLayout(batch);
  const view = Buffer.from(batch.bytes.buffer, batch.bytes.byteOffset, batch.bytes.byteLength);
  const left = Array.from({ length: expiration < 0 ? 0 : batch.count }, (_, i) => {
    const bytes = Uint8Array.from(view.subarray(i * stride + expiration, i * stride + expiration + 8));
    return Number(new BigUint64Array(bytes.buffer)[0]);
  });
  return Math.max(0, ...left);
}

/**
 * Elements that no packet can see yet, written ahead of what makes it see them, some thousands a transaction.
 *
 * Elements of a set that no rule in the kernel names, or of any as long as no chain has a hook, can come and go unseen. Where there are
 * many, all in one transaction would be dear: while anything on the host listens to nf_tables, in whatever network namespace, the kernel
 * makes a message for each object of a transaction, a page or two, and holds all of them until the transaction is through (500,000
 * elements: 4 GB), with every other commit of the namespace waiting. So they go first, and the last transaction brings the rules that
 * packets come by: they see everything or nothing of it. What a kill in between leaves is a table that no packet sees, or elements that it
 * does not see, which the next start completes.
 *
 * Elements with verdicts do not go ahead, for their chains may come with the last transaction; nor do ranges, whose two ends
 * belong together.
 */
import { strideOf } from "../../kernel/element-batch.js";
import type { ElementBatch } from "../../kernel/types.js";
import type { CapturedSet } from "./capture.js";
import type { PackedChange } from "../elements/element-set.js";
import { RowList } from "../elements/packed-map.js";
import type { SetPlan } from "./plan.js";

/** Elements of a transaction, unless TableOptions say otherwise. */
export const PIECE_ELEMENTS = 16_384;

/** What one transaction does to a set, and whom it is to be told that it is in force. */
export type OutgoingSet = SetPlan & Pick<CapturedSet, "taken">;

/** One transaction's. */
export interface Piece {
  readonly sets: readonly OutgoingSet[];
  /** All that goes ahead has gone. */
  readonly last: boolean;
}

/** The elements that were captured for one apply, until each is in force or given back. */
export class Outgoing {
  readonly #sets: readonly CapturedSet[];
  /** Sets that are not packed yet. */
  readonly #unpacked: Set<CapturedSet>;
  /** Packed, and not in force. */
  readonly #open = new Set<OutgoingSet>();
  #settling = Promise.resolve();

  constructor(sets: readonly CapturedSet[]) {
    this.#sets = sets;
    this.#unpacked = new Set(sets);
  }

  /** What goes ahead, `size` elements at a time; then everything else. */
  async *pieces(size: number): AsyncGenerator<Piece> {
    let sets: OutgoingSet[] = [];
    let free = size;
    const last: OutgoingSet[] = [];
    for (const captured of this.#sets) {
      if (!captured.ahead) continue;
      for (const part of await this.#pack(captured, free, size)) {
        if (free === 0) {
          yield { sets, last: false };
          sets = [];
          free = size;
        }
        sets.push(part);
        free -= elementsIn(part.change);
      }
    }
    if (sets.length > 0) yield { sets, last: false };
    for (const captured of this.#unpacked) last.push(...(await this.#pack(captured)));
    yield { sets: last, last: true };
  }

  /** These are in force. They are noted while others are written: `settled` waits for that. Late rows wait until `due`. */
  settle(sets: readonly OutgoingSet[], due: number): void {
    for (const set of sets) this.#open.delete(set);
    this.#settling = this.#settleAfter(this.#settling, sets, due);
  }

  async #settleAfter(former: Promise<void>, sets: readonly OutgoingSet[], due: number): Promise<void> {
    await former;
    for (const { taken, change } of sets) if (change !== undefined) await taken?.settle(change, due);
  }

  settled(): Promise<void> {
    return this.#settling;
  }

  /** What is not in force is to be done again. */
  async giveBack(): Promise<void> {
    await this.#settling;
    for (const set of this.#unpacked) await this.#pack(set);
    for (const { taken, change } of this.#open) if (change !== undefined) await taken?.abort(change);
  }

  /** In parts of at most `first` elements (0: `size`) and then `size`. */
  async #pack(captured: CapturedSet, first = Infinity, size = Infinity): Promise<readonly OutgoingSet[]> {
    this.#unpacked.delete(captured);
    const set: OutgoingSet =
      captured.taken === undefined ? captured : { ...captured, change: await captured.taken.pack() };
    const count = elementsIn(set.change);
    const parts: OutgoingSet[] = [];
    for (let from = 0; from < count || from === 0;) {
      const to = Math.min(count, from + (from === 0 && first > 0 ? first : size));
      parts.push(partOf(set, from, to));
      from = Math.max(to, 1);
    }
    for (const part of parts) this.#open.add(part);
    return parts;
  }
}

function elementsIn(change: PackedChange | undefined): number {
  return (change?.adds?.count ?? 0) + (change?.deletes?.count ?? 0);
}

/** Of the set's elements, deletions first, those from `from` to `to`; all else that there is to note comes with the last of them. */
function partOf(set: OutgoingSet, from: number, to: number): OutgoingSet {
  const { change } = set;
  const count = elementsIn(change);
  if (change === undefined || to - from === count) return set;
  const deletions = change.deletes?.count ?? 0;
  const deleted = [Math.min(from, deletions), Math.min(to, deletions)] as const;
  const added = [from - deleted[0], to - deleted[1]] as const;
  const part: PackedChange = {
    full: change.full && from === 0,
    ...batchesOf(change, deleted, added),
    addRows: rowsOf(change.addRows, ...added),
    deleteRows: rowsOf(change.deleteRows, ...deleted),
    lateRows: to === count ? change.lateRows : new RowList(),
    otherRows: to === count ? change.otherRows : new RowList(),
  };
  // The set is made with its first elements.
  return from === 0 ? { ...set, change: part } : { ...set, action: "keep", change: part };
}

function batchesOf(
  { adds, deletes }: PackedChange,
  deleted: readonly [number, number],
  added: readonly [number, number],
): Pick<PackedChange, "adds" | "deletes"> {
  return {
    ...(adds === undefined || added[0] === added[1] ? {} : { adds: recordsOf(adds, ...added) }),
    ...(deletes === undefined || deleted[0] === deleted[1] ? {} : { deletes: recordsOf(deletes, ...deleted) }),
  };
}

function recordsOf(batch: ElementBatch, from: number, to: number): ElementBatch {
  const stride = strideOf(batch);
  return { ...batch, count: to - from, bytes: batch.bytes.subarray(from * stride, to * stride) };
}

function rowsOf({ rows }: RowList, from: number, to: number): RowList {
  const part = new RowList();
  part.rows = rows.subarray(from, to);
  part.length = to - from;
  return part;
}

/** Writes each as soon as the one before is through; the next is prepared meanwhile. */
export async function inTurn<T>(all: AsyncIterable<T>, write: (one: T) => Promise<void>): Promise<void> {
  let writing = Promise.resolve();
  try {
    for await (const one of all) {
      await writing;
      writing = write(one);
      // While the next one is prepared its failure has no listener yet; the await that follows gets it.
      writing.catch(() => undefined);
    }
  } finally {
    await writing;
  }
}

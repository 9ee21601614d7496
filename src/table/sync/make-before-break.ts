/**
 * What goes out ahead of the transaction that brings the rest: chains that it makes elements lead to, and elements that no packet can see yet.
 *
 * **Chains.** A packet takes the rules of the generation in which it entered a base chain (nft_do_chain reads `gencursor` once), but each
 * look-up in a map reads the generation anew. One that is under way while a transaction takes effect may so find the new verdict, or data
 * that leads to one, and run the chain that it names in the old generation. A chain that the same transaction created is empty there: the
 * packet would pass unrewritten. Nothing goes to a new chain before its verdict, so creating it first does no harm.
 *
 * **Elements.** Those of a set that no rule in the kernel names, or of any as long as no chain has a hook, can come and go unseen. Where
 * there are many, all in one transaction would be dear: while anything on the host listens to nf_tables, in whatever network namespace,
 * the kernel makes a message for each object of a transaction, a page or two, and holds all of them until the transaction is through
 * (500,000 elements: 4 GB), with every other commit of the namespace waiting. So they go first, some thousands a transaction, and the last
 * one brings the rules that packets come by: they see everything or nothing of it. What a kill in between leaves is a table that no packet
 * sees, or elements that it does not see, which the next start completes. The new chains go before them, whether packets come by or not:
 * the kernel looks at all elements of a map for each rule that comes to name it. Elements with verdicts do not go ahead, for their chains
 * may come with the last transaction; nor do ranges, whose two ends belong together.
 */
import type { PackedChange } from "../elements/batches.js";
import { namesAny, type PlanInput, type SetPlan } from "./plan.js";
import type { Snapshot } from "./snapshot.js";
import { type KernelState, packetsComeBy } from "./dump.js";

/** Elements of a transaction, unless TableOptions say otherwise. */
export const PIECE_ELEMENTS = 16_384;

/**
 * The chains that go ahead, those without a hook, and the sets that their rules name, empty for now. Those whose rules name what is made anew
 * can only come with it. Undefined: no chain needs to.
 */
export function chainsAhead(
  { chains, sets, dirty, ahead, going }: Snapshot,
  state: KernelState,
): Pick<PlanInput, "chains" | "sets"> | undefined {
  const isNew = (name: string): boolean => !state.chains.has(name);
  const leadsToNew = packetsComeBy(state) && [...dirty.targets].some(isNew);
  if (!leadsToNew && ahead.size === 0) return undefined;
  const named = new Set<string>();
  const first = chains.filter(({ name, desired }) => {
    if (desired === undefined || desired.spec.base !== undefined || !isNew(name)) return false;
    if (namesAny(desired.rules, going)) return false;
    for (const { refs } of desired.rules) for (const set of refs.sets) named.add(set);
    return true;
  });
  if (first.length === 0) return undefined;
  return { chains: first, sets: sets.filter(({ name, action }) => named.has(name) && action === "create") };
}

/** One transaction's. */
export interface Piece {
  readonly sets: readonly SetPlan[];
  /** All that goes ahead has gone. */
  readonly last: boolean;
}

/** The elements that were taken for one apply, until each is in force or given back. */
export class Outgoing {
  readonly #ahead: Iterable<string>;
  /** By name; of what is packed in parts the rest. */
  readonly #unpacked: Map<string, SetPlan>;
  readonly #open = new Set<SetPlan>();
  #settling = Promise.resolve();

  constructor({ sets, ahead }: Snapshot) {
    this.#ahead = ahead;
    this.#unpacked = new Map(sets.map((set) => [set.name, set]));
  }

  /** What goes ahead, `size` rows at a time; then everything else. */
  async *pieces(size: number): AsyncGenerator<Piece> {
    let sets: SetPlan[] = [];
    let free = size;
    for (const name of this.#ahead) {
      for (let set = this.#unpacked.get(name); set !== undefined; set = this.#unpacked.get(name)) {
        if (free === 0) {
          yield { sets, last: false };
          sets = [];
          free = size;
        }
        const part = await this.#pack(set, free);
        sets.push(part);
        free = Math.max(0, free - elementsIn(part.change));
      }
    }
    if (sets.length > 0) yield { sets, last: false };
    const last: SetPlan[] = [];
    for (const set of this.#unpacked.values()) last.push(await this.#pack(set));
    yield { sets: last, last: true };
  }

  /** These are in force. They are noted while others are written: `settled` waits for that. Grace periods that begin with it end at `due`. */
  settle(sets: readonly SetPlan[], due: number): void {
    for (const set of sets) this.#open.delete(set);
    const before = this.#settling;
    const settle = async (): Promise<void> => {
      await before;
      for (const { taken, change } of sets) if (change !== undefined) await taken?.settle(change, due);
    };
    this.#settling = settle();
  }

  settled(): Promise<void> {
    return this.#settling;
  }

  /** What is not in force is to be done again. */
  async giveBack(): Promise<void> {
    await this.#settling;
    for (const { taken } of this.#unpacked.values()) await taken?.giveBack();
    for (const { taken, change } of this.#open) if (change !== undefined) await taken?.abort(change);
  }

  /** The set's next `most` rows; the set is made with the first of them. */
  async #pack(set: SetPlan, most?: number): Promise<SetPlan> {
    const { name, taken } = set;
    const change = await taken?.pack(most);
    if (taken?.packing === true) this.#unpacked.set(name, { ...set, action: "keep" });
    else this.#unpacked.delete(name);
    const part = { ...set, change };
    this.#open.add(part);
    return part;
  }
}

function elementsIn(change: PackedChange | undefined): number {
  return (change?.adds?.count ?? 0) + (change?.deletes?.count ?? 0);
}

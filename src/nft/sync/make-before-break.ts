/**
 * Sends some parts ahead of the main transaction: chains that its elements will refer to, and elements that no packet can see yet.
 *
 * **Chains.** A packet uses the rules of the generation in which it entered a base chain (nft_do_chain reads `gencursor` once). But each map look-up
 * reads the generation again. So a packet in flight during a commit may find a new verdict, or data that leads to one. It then runs the new chain in
 * the old generation, in which a chain from the same transaction is still empty. The packet would pass without being rewritten. No packet can reach a
 * new chain before its verdict exists, so creating the chain first does no harm.
 *
 * **Elements.** Packets cannot see the elements of a set that no rule in the kernel names, or any elements as long as no chain has a hook.
 *
 * - Many elements in one transaction are expensive if anything on the host listens to nf_tables, in any network namespace. The kernel allocates a
 *   message of a page or two per object, and keeps all of them until the commit ends (500,000 elements: 4 GB). All other commits of the
 *   namespace wait meanwhile.
 * - So these elements go first, some thousands in each transaction. The last transaction adds the rules that packets traverse, so packets see all of
 *   the change or nothing. If the process is killed in between, the elements or the table are still invisible, and the next start completes them.
 * - The new chains go before the elements, whether packets can reach them or not. For each new rule with a map, the kernel checks all its
 *   elements.
 * - Elements with verdicts do not go ahead: their chains may come with the last transaction. Nor do ranges, whose two ends belong together.
 */
import type { PackedChange } from "../elements/batch-writer.js";
import { type ChainPlan, namesAny, type PlanInput, type SetPlan } from "./plan.js";
import type { Decisions } from "./decisions.js";
import { type KernelState, packetsComeBy } from "./table-dump.js";

/** Maximum number of elements in a transaction, unless TableOptions set another one. */
export const PIECE_ELEMENTS = 16_384;

/** Maximum number of rules in a transaction of chains that go ahead, unless one chain has more. The kernel checks each rule's sets and chains. */
const PIECE_RULES = 2048;

/**
 * Returns the chains without a hook that go ahead, and the still empty sets that their rules name, in parts for one transaction each. A chain whose
 * rules name an object that is created again must wait for it.
 */
export function chainsAhead(
  { chains, sets, dirty, ahead, going }: Decisions,
  state: KernelState,
): Pick<PlanInput, "chains" | "sets">[] {
  const isNew = (name: string): boolean => !state.chains.has(name);
  const leadsToNew = packetsComeBy(state) && [...dirty.newlyUsed].some(isNew);
  const parts: { readonly chains: ChainPlan[]; readonly named: Set<string>; rules: number }[] = [];
  for (const plan of chains) {
    const { name, desired } = plan;
    if (desired === undefined || desired.spec.base !== undefined || !isNew(name)) continue;
    if (namesAny(desired.rules, going)) continue;
    let part = parts.at(-1);
    if (part === undefined || part.rules + desired.rules.length > PIECE_RULES)
      parts.push((part = { chains: [], named: new Set(), rules: 0 }));
    part.rules += desired.rules.length;
    part.chains.push(plan);
    for (const { refs } of desired.rules) for (const set of refs.sets) part.named.add(set);
  }
  if (!leadsToNew && ahead.size === 0 && parts.length < 2) return [];
  return parts.map((part) => ({
    chains: part.chains,
    sets: sets.filter(({ name, action }) => part.named.has(name) && action === "create"),
  }));
}

/** The part for one transaction. */
export interface Piece {
  readonly sets: readonly SetPlan[];
  /** Everything that goes ahead has been written. */
  readonly last: boolean;
}

/** The elements that one apply took, until they are committed or given back. */
export class Outgoing {
  readonly #ahead: Iterable<string>;
  /** By name. For partly packed sets, the remainder. */
  readonly #unpacked: Map<string, SetPlan>;
  readonly #open = new Set<SetPlan>();
  #settling = Promise.resolve();

  constructor({ sets, ahead }: Decisions) {
    this.#ahead = ahead;
    this.#unpacked = new Map(sets.map((set) => [set.name, set]));
  }

  /** Yields the parts that go ahead, `size` rows at a time, and then everything else. */
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

  /**
   * Notes that these sets are committed, while others are being written. `settled` waits for this. Grace periods that begin with them end at `due`.
   */
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

  /** Makes everything that was not committed pending again. */
  async giveBack(): Promise<void> {
    await this.#settling;
    for (const { taken } of this.#unpacked.values()) await taken?.giveBack();
    for (const { taken, change } of this.#open) if (change !== undefined) await taken?.abort(change);
  }

  /** Packs the set's next `most` rows. The first pack also creates the set. */
  async #pack(set: SetPlan, most?: number): Promise<SetPlan> {
    const { name, taken } = set;
    const change = await taken?.pack(most);
    if (taken?.underWay === true) this.#unpacked.set(name, { ...set, action: "keep" });
    else this.#unpacked.delete(name);
    const part = { ...set, change };
    this.#open.add(part);
    return part;
  }
}

function elementsIn(change: PackedChange | undefined): number {
  return (change?.adds?.count ?? 0) + (change?.deletes?.count ?? 0);
}

/** The comparison of what was observed with what the kernel holds, for what no event shows. */
import type { ComparableSet, ObservedTable } from "./observed.js";

/** "same": the kernel holds what it was observed to. "different": it may not, and the next apply that repairs reads it. */
export type CheckOutcome = "same" | "different";

/**
 * Checks a table now and then: the structure and the number of elements of every set, and elements one set after another, each while none of our own
 * applies runs. The parts are of different moments: what another process changes meanwhile is found now or by the next check. Dumps take no
 * lock of the kernel's, and a check only notes what differs: the next read finds and repairs it.
 */
export class TableCheck {
  /** In which of the checks the elements of a set were compared last. */
  readonly #compared = new Map<string, number>();
  #checks = 0;

  constructor(readonly table: ObservedTable) {}

  /**
   * @param undisturbed does a part while no apply runs.
   * @param insertions compares our rules in others' chains.
   * @param mostElements about as many are compared, of the sets that have waited longest; of a kernel that does not count elements all are.
   */
  async run(
    undisturbed: <T>(part: () => Promise<T>) => Promise<T>,
    insertions: () => Promise<boolean>,
    mostElements: number,
  ): Promise<CheckOutcome> {
    const { table } = this;
    if (table.invalidations.any) return "different";
    const { same, sets } = await undisturbed(() => table.compareStructure());
    const differing: string[] = [];
    const counted = sets.some(({ countDiffers }) => countDiffers !== undefined);
    for (const set of this.#inTurn(sets, counted ? mostElements : Infinity)) {
      if (table.invalidations.any) return "different";
      if (!(await undisturbed(() => table.compareElements(set)))) differing.push(set);
      this.#compared.set(set, this.#checks);
    }
    const inserted = await undisturbed(insertions);
    if (same && differing.length === 0) return inserted ? "same" : "different";
    const reason = "a check found the table otherwise than it was left";
    table.invalidations.add({ cause: "check", reason, sets: differing });
    return "different";
  }

  /** Those whose number of elements is another one, and of the others those that have waited longest, at least one. */
  #inTurn(sets: readonly ComparableSet[], mostElements: number): string[] {
    this.#checks++;
    const there = new Set(sets.map(({ set }) => set));
    for (const set of this.#compared.keys()) if (!there.has(set)) this.#compared.delete(set);
    const waiting = (set: string): number => this.#compared.get(set) ?? 0;
    const picked: string[] = [];
    let elements = 0;
    for (const { set, ...facts } of sets.toSorted((a, b) => waiting(a.set) - waiting(b.set))) {
      const fits = elements === 0 || elements + facts.elements <= mostElements;
      if (!fits && facts.countDiffers !== true) continue;
      picked.push(set);
      elements += facts.elements;
    }
    return picked;
  }
}

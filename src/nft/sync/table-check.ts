/** Compares the observed state with the kernel, for changes that no event reports. */
import type { ComparableSet, ObservedTable } from "./observed-table.js";

/** "same": the kernel holds the observed state. "different": it may not, and the next apply that repairs reads it. */
export type CheckOutcome = "same" | "different";

/**
 * Checks the structure, the number of elements of every set, and the elements of one set after another. Each part runs while none of our applies
 * does, so the parts are from different moments. A change in between is found now or by the next check. Dumps take no lock in the kernel. A check
 * only notes differences: the next read finds and repairs them.
 */
export class TableCheck {
  /** By set: the number of the check that compared its elements last. */
  readonly #compared = new Map<string, number>();
  #checks = 0;

  constructor(readonly table: ObservedTable) {}

  /**
   * @param undisturbed runs a part while no apply runs.
   * @param mostElements compare about this many, of the sets that have waited longest. If the kernel does not count elements, all are compared.
   */
  async run(undisturbed: <T>(part: () => Promise<T>) => Promise<T>, mostElements: number): Promise<CheckOutcome> {
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
    if (same && differing.length === 0) return "same";
    const reason = "a check found that the table differs from what was last written";
    table.invalidations.add({ cause: "check", reason, sets: differing });
    return "different";
  }

  /** Returns the sets whose number of elements differs, and as many others as fit, the longest-waiting first: at least one. */
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

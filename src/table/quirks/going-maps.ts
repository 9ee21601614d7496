/**
 * Verdict maps that go, and the chains that their elements hold on to.
 *
 * A map that is deleted lets go of them in the same transaction since Linux 6.4 (5.10.188, 6.1.36; commit 628bd3e49cba). Before,
 * only elements do that are deleted themselves: there the map is emptied first, lest its chains be busy (EBUSY).
 *
 * Where that is not needed it must not be done. Linux 6.1.176 to 6.1.190 (commit e79b47a8615d without 86a1471d7cde, which 6.9 has
 * both) take a refused transaction back such that each element counts for its chain twice: once as it comes back itself, once as its map
 * does. Nothing shows it but that the chain stays busy, for as long as the table lives.
 */
import type { Family, Kernel } from "../../kernel/types.js";
import { probeDeletedMaps } from "./features.js";
import type { SetPlan } from "../sync/plan.js";

export class GoingMaps {
  readonly #kernel: Kernel;
  readonly #family: Family;
  #letGo: boolean | undefined;

  constructor(kernel: Kernel, family: Family) {
    this.#kernel = kernel;
    this.#family = family;
  }

  /** Whether verdict maps among these sets have to be emptied before they go. Asks the kernel once, when the first of them goes. */
  async mustBeEmptied(sets: readonly SetPlan[]): Promise<boolean> {
    const go = sets.some(({ action, holdsChains }) => holdsChains && (action === "delete" || action === "recreate"));
    if (!go) return false;
    this.#letGo ??= await probeDeletedMaps(this.#kernel, this.#family);
    return this.#letGo === false;
  }
}

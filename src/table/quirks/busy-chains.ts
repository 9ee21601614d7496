/**
 * Chains that nobody wants, and that the kernel calls busy although nothing that it shows refers to them. Kernels have counted the uses
 * of chains wrong more than once (going-maps.ts names one way); such a chain cannot be deleted as long as its table lives. It
 * stays, without rules, and all else that is to go does go. Each read of everything has it tried once more.
 */
import type { FaultyObject } from "../rules/types.js";

export class BusyChains {
  readonly #names = new Set<string>();

  get names(): ReadonlySet<string> {
    return this.#names;
  }

  /**
   * Takes note of what a transaction was refused for that was planned on a fresh read. A chain that is busy counts only where nothing else is at
   * fault: what refers to it may be what could not be deleted.
   * @returns whether the transaction is worth another try without them.
   */
  note(faulty: readonly FaultyObject[], isWanted: (chain: string) => boolean): boolean {
    const chains = faulty.flatMap(({ kind, chain, errno }) =>
      kind === "chain" && errno === "EBUSY" && chain !== undefined && !isWanted(chain) ? [chain] : [],
    );
    if (chains.length === 0 || chains.length < faulty.length) return false;
    const before = this.#names.size;
    for (const chain of chains) this.#names.add(chain);
    return this.#names.size > before;
  }

  forget(): void {
    this.#names.clear();
  }
}

import type { Verdict } from "../../kernel/types.js";

/**
 * Verdicts as small numbers, and how often desired elements use each: so that verdict maps keep 4 bytes an element, and removing
 * a chain that is still in use is noticed without walking the maps.
 */
export class VerdictRegistry {
  readonly #verdicts: (Verdict | undefined)[] = [];
  readonly #ids = new Map<string, number>();
  readonly #uses: number[] = [];
  readonly #free: number[] = [];
  /** Verdicts that name a chain and came into use since the last `takeNewlyUsed`. */
  #newlyUsed: number[] = [];

  id(verdict: Verdict): number {
    const key = verdictText(verdict);
    const known = this.#ids.get(key);
    if (known !== undefined) return known;
    const id = this.#free.pop() ?? this.#verdicts.length;
    this.#verdicts[id] = verdict;
    this.#uses[id] = 0;
    this.#ids.set(key, id);
    return id;
  }

  /**
   * The kernel has no such chain, and so no element that goes there: what is not desired gives its number up. Chains of services
   * come and go for as long as the program runs.
   */
  forget(chain: string): void {
    for (const key of keysOf(chain)) {
      const id = this.#ids.get(key);
      if (id === undefined || this.#uses[id] > 0) continue;
      this.#ids.delete(key);
      this.#verdicts[id] = undefined;
      this.#free.push(id);
    }
  }

  get(id: number): Verdict {
    const verdict = this.#verdicts[id];
    if (verdict === undefined) throw new RangeError(`${id} is not an id that verdictId() gave`);
    return verdict;
  }

  retain(id: number): void {
    if (this.#uses[id]++ === 0 && this.chainOf(id) !== undefined) this.#newlyUsed.push(id);
  }

  release(id: number): void {
    this.#uses[id]--;
  }

  chainOf(id: number): string | undefined {
    return targetOf(this.get(id));
  }

  /** Number of desired elements with a jump or goto to the chain. */
  usesOf(chain: string): number {
    let uses = 0;
    for (const key of keysOf(chain)) {
      const id = this.#ids.get(key);
      if (id !== undefined) uses += this.#uses[id];
    }
    return uses;
  }

  /** Chains that elements came to name since the last call and still do. */
  takeNewlyUsed(): string[] {
    const chains: string[] = [];
    for (const id of this.#newlyUsed) {
      const chain = this.#uses[id] > 0 ? this.chainOf(id) : undefined;
      if (chain !== undefined) chains.push(chain);
    }
    this.#newlyUsed = [];
    return chains;
  }
}

export function targetOf(verdict: Verdict): string | undefined {
  return verdict.verdict === "jump" || verdict.verdict === "goto" ? verdict.chain : undefined;
}

function keysOf(chain: string): readonly string[] {
  return [verdictText({ verdict: "goto", chain }), verdictText({ verdict: "jump", chain })];
}

/** As nft prints it. */
export function verdictText(verdict: Verdict): string {
  const target = targetOf(verdict);
  return target === undefined ? verdict.verdict : `${verdict.verdict} ${target}`;
}

import type { Verdict } from "../../netlink/kernel.js";

interface NumberedVerdict {
  readonly id: number;
  readonly verdict: Verdict;
  /** By desired elements only. */
  uses: number;
}

/**
 * Numbers verdicts, and counts how many desired elements use each. So verdict maps keep 4 bytes per element, and removing a chain that is still
 * in use is noticed without walking the maps.
 */
export class VerdictRegistry {
  readonly #byId: (NumberedVerdict | undefined)[] = [];
  readonly #byText = new Map<string, NumberedVerdict>();
  readonly #free: number[] = [];
  /** Targets of verdicts that came into use since the last `takeNewlyUsed`. */
  readonly #newlyUsed = new Set<string>();

  id(verdict: Verdict): number {
    const text = verdictText(verdict);
    const known = this.#byText.get(text);
    if (known !== undefined) return known.id;
    const id = this.#free.pop() ?? this.#byId.length;
    const numbered = { id, verdict, uses: 0 };
    this.#byId[id] = numbered;
    this.#byText.set(text, numbered);
    return id;
  }

  /**
   * The kernel has no such chain, so no element goes there, and unused verdicts give up their numbers. Chains of services come and go for as long as
   * the program runs.
   */
  forget(chain: string): void {
    for (const { id, verdict, uses } of this.#leadingTo(chain)) {
      if (uses > 0) continue;
      this.#byText.delete(verdictText(verdict));
      this.#byId[id] = undefined;
      this.#free.push(id);
    }
  }

  get(id: number): Verdict {
    return this.#numbered(id).verdict;
  }

  retain(id: number): void {
    const numbered = this.#numbered(id);
    const chain = numbered.uses++ === 0 ? chainOf(numbered.verdict) : undefined;
    if (chain !== undefined) this.#newlyUsed.add(chain);
  }

  release(id: number): void {
    this.#numbered(id).uses--;
  }

  chainOf(id: number): string | undefined {
    return chainOf(this.get(id));
  }

  /** Number of desired elements with a jump or goto to the chain. */
  usesOf(chain: string): number {
    return this.#leadingTo(chain).reduce((sum, { uses }) => sum + uses, 0);
  }

  /** Returns the chains that elements began to use since the last call, and still use. */
  takeNewlyUsed(): string[] {
    const chains = [...this.#newlyUsed].filter((chain) => this.usesOf(chain) > 0);
    this.#newlyUsed.clear();
    return chains;
  }

  #leadingTo(chain: string): NumberedVerdict[] {
    return [`goto ${chain}`, `jump ${chain}`].flatMap((text) => this.#byText.get(text) ?? []);
  }

  #numbered(id: number): NumberedVerdict {
    const numbered = this.#byId[id];
    if (numbered === undefined) throw new RangeError(`${id} is not an id from verdictId()`);
    return numbered;
  }
}

export function chainOf(verdict: Verdict): string | undefined {
  return verdict.verdict === "jump" || verdict.verdict === "goto" ? verdict.chain : undefined;
}

/** As nft prints it. */
export function verdictText(verdict: Verdict): string {
  const chain = chainOf(verdict);
  return chain === undefined ? verdict.verdict : `${verdict.verdict} ${chain}`;
}

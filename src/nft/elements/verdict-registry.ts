import type { Verdict } from "../kernel/kernel.js";
import { verdictText } from "../language/verdicts.js";
import { objectKey, type ObjectName } from "../language/object-kinds.js";

/** Where an element of a map leads: a verdict, or a named object. */
export type Target = Verdict | ObjectName;

interface NumberedTarget {
  readonly id: number;
  readonly verdict: Target;
  /** By desired elements only. */
  uses: number;
}

/**
 * Numbers verdicts and named objects, and counts how many desired elements use each. So maps keep 4 bytes per element, and removing a chain or object
 * that is still in use is noticed without walking the maps. The name of an object is its key: "counter web".
 */
export class VerdictRegistry {
  readonly #byId: (NumberedTarget | undefined)[] = [];
  readonly #byText = new Map<string, NumberedTarget>();
  readonly #free: number[] = [];
  /** Names of chains and objects that came into use since the last `takeNewlyUsed`. */
  readonly #newlyUsed = new Set<string>();

  id(verdict: Target): number {
    const text = uniqueText(verdict);
    const known = this.#byText.get(text);
    if (known !== undefined) return known.id;
    const id = this.#free.pop() ?? this.#byId.length;
    const numbered = { id, verdict, uses: 0 };
    this.#byId[id] = numbered;
    this.#byText.set(text, numbered);
    return id;
  }

  /**
   * The kernel has no such chain or object, so no element leads there, and unused verdicts give up their numbers. Chains of services come and go for
   * as long as the program runs.
   */
  forget(name: string): void {
    for (const { id, verdict, uses } of this.#leadingTo(name)) {
      if (uses > 0) continue;
      this.#byText.delete(uniqueText(verdict));
      this.#byId[id] = undefined;
      this.#free.push(id);
    }
  }

  get(id: number): Target {
    return this.#numbered(id).verdict;
  }

  retain(id: number): void {
    const numbered = this.#numbered(id);
    const name = numbered.uses++ === 0 ? nameOf(numbered.verdict) : undefined;
    if (name !== undefined) this.#newlyUsed.add(name);
  }

  release(id: number): void {
    this.#numbered(id).uses--;
  }

  /** The name of the chain or object that it leads to. */
  nameOf(id: number): string | undefined {
    return nameOf(this.get(id));
  }

  /** Number of desired elements that lead to the chain or object. */
  usesOf(name: string): number {
    return this.#leadingTo(name).reduce((sum, { uses }) => sum + uses, 0);
  }

  /** Returns the chains and objects that elements began to use since the last call, and still use. */
  takeNewlyUsed(): string[] {
    const names = [...this.#newlyUsed].filter((name) => this.usesOf(name) > 0);
    this.#newlyUsed.clear();
    return names;
  }

  #leadingTo(name: string): NumberedTarget[] {
    const texts = isObjectKey(name) ? [name] : [`goto ${name}`, `jump ${name}`];
    return texts.flatMap((text) => this.#byText.get(text) ?? []);
  }

  #numbered(id: number): NumberedTarget {
    const numbered = this.#byId[id];
    if (numbered === undefined) throw new RangeError(`${id} is not an id from verdictId()`);
    return numbered;
  }
}

export function chainOf(verdict: Verdict): string | undefined {
  return verdict.verdict === "jump" || verdict.verdict === "goto" ? verdict.chain : undefined;
}

function nameOf(target: Target): string | undefined {
  return "object" in target ? objectKey(target) : chainOf(target);
}

function uniqueText(target: Target): string {
  return "object" in target ? objectKey(target) : verdictText(target);
}

/** Whether a name is that of an object, not of a chain. */
export function isObjectKey(name: string): boolean {
  return name.includes(" ");
}

/** As nft prints it. */
export function targetText(target: Target): string {
  return "object" in target ? `"${target.object}"` : verdictText(target);
}

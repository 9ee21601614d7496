/** Finding who is refused, by halves: whom it blames, what it leaves desired, and how many refusals it takes. */
import { describe, expect, it } from "vitest";

import { findRefused, type SearchResult, type Trial } from "../../../src/proxier/bisect.js";

const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

/** A kernel that takes what is desired as a whole, or refuses it; none of `count` items is in force at first. */
class Kernel implements Trial<number> {
  readonly desired: Set<number>;
  inForce = new Set<number>();
  refusals = 0;
  readonly #refuses: (desired: ReadonlySet<number>) => boolean;

  constructor(count: number, refuses: (desired: ReadonlySet<number>) => boolean) {
    this.desired = new Set(range(count));
    this.#refuses = refuses;
  }

  async forward(items: readonly number[]): Promise<void> {
    for (const item of items) this.desired.add(item);
  }

  async back(items: readonly number[]): Promise<void> {
    for (const item of items) this.desired.delete(item);
  }

  async works(): Promise<boolean> {
    if (this.#refuses(this.desired)) {
      this.refusals++;
      return false;
    }
    this.inForce = new Set(this.desired);
    return true;
  }

  find(): Promise<SearchResult<number>> {
    return findRefused([...this.desired], this);
  }
}

const any = (bad: readonly number[]) => (desired: ReadonlySet<number>) => bad.some((item) => desired.has(item));

describe("findRefused", () => {
  it.each<[string, number, number[]]>([
    ["one of one", 1, [0]],
    ["one of many", 1000, [617]],
    ["neighbours", 1000, [499, 500]],
    ["the first and the last", 1000, [0, 999]],
    ["several", 1000, [3, 250, 251, 700, 999]],
    ["two of two", 2, [0, 1]],
  ])("%s: they alone are refused, all others are in force", async (_what, count, bad) => {
    const kernel = new Kernel(count, any(bad));
    const { refused, untried } = await kernel.find();
    expect(refused.toSorted((a, b) => a - b)).toEqual(bad);
    expect(untried).toEqual([]);
    const others = new Set(range(count).filter((item) => !bad.includes(item)));
    expect([kernel.inForce, kernel.desired]).toEqual([others, others]);
    expect(kernel.refusals).toBeLessThanOrEqual(bad.length * (Math.ceil(Math.log2(count)) + 1));
  });

  it("everything, with or without them: no service is to blame, and all stay desired", async () => {
    const kernel = new Kernel(1000, () => true);
    expect(await kernel.find()).toEqual({ refused: [], untried: range(1000) });
    expect(kernel.desired.size).toBe(1000);
    expect(kernel.refusals).toBe(1);
  });

  it.each([3, 1000])("all %i of them: that is no service's own doing", async (count) => {
    const kernel = new Kernel(count, (desired) => desired.size > 0);
    const { refused, untried } = await kernel.find();
    expect(refused).toEqual([]);
    expect(untried.toSorted((a, b) => a - b)).toEqual(range(count));
    expect(kernel.desired.size).toBe(count);
    expect(kernel.refusals).toBeLessThan(40);
  });

  it("as many as a search can bear: those that were found are refused, the rest is desired and left for later", async () => {
    const kernel = new Kernel(1000, (desired) => [...desired].some((item) => item >= 500));
    const { refused, untried } = await kernel.find();
    expect(untried.length).toBeGreaterThan(0);
    expect(refused.every((item) => item >= 500)).toBe(true);
    expect(kernel.desired).toEqual(new Set(range(1000).filter((item) => !refused.includes(item))));
    expect(untried.every((item) => kernel.desired.has(item) && !kernel.inForce.has(item))).toBe(true);
  });

  it.each(range(8))("a kernel that fails otherwise in the midst (at write %i): all is desired again", async (at) => {
    const bad = any([5, 11]);
    let writes = 0;
    const kernel = new Kernel(16, (desired) => {
      if (writes++ === at) throw new Error("no answer");
      return bad(desired);
    });
    await expect(kernel.find()).rejects.toThrow("no answer");
    expect(kernel.desired).toEqual(new Set(range(16)));
  });
});

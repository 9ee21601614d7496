import { expect, test } from "vitest";
import { DisjointRanges } from "../../../src/nft/bytes/disjoint-ranges.ts";
import { Dice } from "../../support/dice.ts";

test("ranges of two fields are found exactly if they overlap", () => {
  const dice = new Dice(46);
  for (let round = 0; round < 50; round++) {
    const ranges = new DisjointRanges([
      [0, 2],
      [2, 3],
    ]);
    const added: Uint8Array[] = [];
    const overlap = (a: Uint8Array, b: Uint8Array): boolean =>
      a[0] * 256 + a[1] <= b[3] * 256 + b[4] && b[0] * 256 + b[1] <= a[3] * 256 + a[4] && a[2] <= b[5] && b[2] <= a[5];
    for (let i = 0; i < 100; i++) {
      const [first, second] = [dice.below(700), dice.below(60)];
      const [last, end] = [first + dice.below(dice.below(10) === 0 ? 700 : 9), second + dice.below(5)];
      const range = Uint8Array.of(first >> 8, first & 255, second, last >> 8, last & 255, end);
      const expected = added.filter((other) => overlap(range, other));
      const found = ranges.overlapping(range);
      expect([found !== undefined, found === undefined || overlap(range, found)]).toEqual([expected.length > 0, true]);
      if (found !== undefined) continue;
      ranges.add(range);
      added.push(range);
    }
    expect(ranges.size).toBe(added.length);
  }
});

test("a range may be a single value, but not end before it begins", () => {
  const ranges = new DisjointRanges([[0, 2]]);
  expect([ranges.isReversed(Uint8Array.of(1, 2, 1, 2)), ranges.isReversed(Uint8Array.of(1, 2, 1, 1))]).toEqual([
    false,
    true,
  ]);
});

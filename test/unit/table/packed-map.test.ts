import { describe, expect, it } from "vitest";

import { ceilPowerOfTwo, DATA, LIVE, PackedMap, RowList, STATE } from "../../../src/nft/bytes/packed-map.js";
import { atLength } from "../../lab/length.ts";
import { ownMs } from "../../bench/loop-watch.ts";
import { Dice } from "../../support/dice.ts";

function keyOf(map: PackedMap, row: number): number[] {
  const key = new Int32Array(map.keyWords);
  map.copyKey(row, key, 0);
  return [...key];
}

const STEPS = atLength({ short: 2_000, usual: 20_000 });

describe("PackedMap", () => {
  it.each([1, 2, 4, 7].flatMap((words) => [[words, false] as const, [words, true] as const]))(
    "behaves like a Map with keys of %i words, with lists: %s",
    (keyWords, lists) => {
      const dice = new Dice(keyWords);
      const map = new PackedMap(keyWords, 1, lists);
      const reference = new Map<string, number>();
      for (let step = 0; step < STEPS; step++) {
        const key = new Int32Array(keyWords);
        const number = dice.below(700);
        key[0] = number & 0xff;
        key[keyWords - 1] |= (number >> 8) << (step % 2 === 0 ? 0 : 29);
        const text = key.join(".");
        if (dice.next() < 0.45) {
          const row = map.find(key);
          expect(row >= 0).toBe(reference.has(text));
          if (row >= 0) map.remove(row);
          reference.delete(text);
        } else {
          const row = map.findOrInsert(key);
          expect(reference.get(text) ?? row).toBe(row);
          reference.set(text, row);
          expect(keyOf(map, row)).toEqual([...key]);
        }
        expect(map.size).toBe(reference.size);
      }
      for (const [text, row] of reference) expect(map.find(Int32Array.from(text.split("."), Number))).toBe(row);
    },
  );

  it.each([false, true])("keeps rows when it grows, and clears a row that is reused, with lists: %s", (lists) => {
    const map = new PackedMap(2, 1, lists);
    const key = (n: number): Int32Array => Int32Array.of(n >> 3, n & 7);
    for (let i = 0; i < 20_000; i++) {
      const row = map.findOrInsert(key(i));
      map.words(row).set([1, i, ~i], map.at(row));
    }
    for (let i = 0; i < 20_000; i++) {
      const row = map.find(key(i));
      const at = map.at(row);
      const found = [...map.words(row).subarray(at, at + DATA + 1), ...keyOf(map, row)];
      if (found.join() !== [1, i, ~i, ...key(i)].join()) expect.fail(`${i}: ${found.join()}`);
    }
    const row = map.find(key(77));
    // Remove the others of its group: a number is reused once its group is empty.
    for (let i = 72; i < 80; i++) map.remove(map.find(key(i)));
    expect(map.words(row)[map.at(row) + STATE]).toBe(0);
    const again = [0, 1, 2, 3, 4, 5, 6, 7].map((n) => map.findOrInsert(Int32Array.of(99_999, n)));
    expect(again).toContain(row);
    expect([...map.words(row).subarray(map.at(row), map.at(row) + 2)]).toEqual([LIVE, 0]);
  });

  it("finds a key inside a larger buffer", () => {
    const map = new PackedMap(2, 0);
    const row = map.findOrInsert(Int32Array.of(9, 1, 2, 9), 1);
    expect(map.find(Int32Array.of(1, 2))).toBe(row);
    expect(map.find(Int32Array.of(9, 1))).toBe(-1);
  });

  it.each([1, 16, 17, 4_096, 4_097, 70_000])("reserves room for %i entries at once, and then for more", (count) => {
    const map = new PackedMap(2, 1);
    map.reserve(count);
    const first = map.words(0);
    const key = (n: number): Int32Array => Int32Array.of(n >> 3, n & 7);
    for (let i = 0; i < count; i++) if (map.findOrInsert(key(i)) !== i) expect.fail(`${i}`);
    // Nothing was copied to make room.
    expect(map.words(0)).toBe(first);
    for (let i = count; i < count + 100; i++) map.findOrInsert(key(i));
    expect([map.size, map.end]).toEqual([count + 100, count + 100]);
    for (let i = 0; i < count + 100; i++) if (map.find(key(i)) !== i) expect.fail(`${i}`);
  });

  it("has the rows of a list one after the other, as far as they belong to one group", () => {
    const map = new PackedMap(2, 0, true);
    const [group, behind] = [map.groupMask + 1, 7];
    const rows = Array.from({ length: group * 2 }, (_, index) => map.findOrInsert(Int32Array.of(behind, index)));
    for (let i = 1; i < rows.length; i++) {
      if (i % group === 0) continue;
      expect(rows[i]).toBe(rows[i - 1] + 1);
      expect([map.findNext(rows[i - 1]), map.findOrInsertNext(rows[i - 1])]).toEqual([rows[i], rows[i]]);
    }
    expect(map.size).toBe(rows.length);
    map.remove(rows[1]);
    expect([map.findNext(rows[0]), map.find(Int32Array.of(behind, 1)), map.size]).toEqual([-1, -1, rows.length - 1]);
    expect(map.findOrInsertNext(rows[0])).toBe(rows[1]);
    expect(map.size).toBe(rows.length);
  });

  it("behaves like a Map when it is large, and when it shrinks and grows again", () => {
    const dice = new Dice(5);
    const map = new PackedMap(1, 0);
    const reference = new Map<number, number>();
    const key = new Int32Array(1);
    for (const chance of [0.9, 0.1, 0.8]) {
      for (let step = 0; step < 7 * STEPS; step++) {
        const number = dice.below(200_000);
        key[0] = number;
        if (dice.next() < chance) reference.set(number, map.findOrInsert(key));
        else {
          const row = map.find(key);
          if (row !== (reference.get(number) ?? -1)) expect.fail(`${number} is in row ${row}`);
          if (row >= 0) map.remove(row);
          reference.delete(number);
        }
      }
      expect(map.size).toBe(reference.size);
      expect(new Set(reference.values()).size).toBe(reference.size);
      for (const [number, row] of reference) {
        key[0] = number;
        if (map.find(key) !== row) expect.fail(`${number} is not in row ${row}`);
      }
    }
  });

  it("grows without blocking", () => {
    const STEP = 2_000;
    const fill = (): number[] => {
      const map = new PackedMap(4, 2);
      const key = new Int32Array(4);
      return Array.from({ length: 600 }, (_, step) => {
        const before = ownMs();
        for (let i = step * STEP; i < (step + 1) * STEP; i++) {
          key[1] = i;
          map.findOrInsert(key);
        }
        return ownMs() - before;
      });
    };
    // The map does the same in each round; disturbances by the machine hit different steps each time.
    const rounds = [fill(), fill(), fill()];
    const steps = Array.from({ length: 600 }, (_, step) => Math.min(...rounds.map((round) => round[step] ?? 0)));
    const whole = steps.reduce((sum, ms) => sum + ms, 0);
    // Copying and rehashing all of them would take at least 60 ms, a fifth of the total.
    expect(Math.max(...steps)).toBeLessThan(Math.max(30, whole / 10));
  });

  it.each([
    ["keys of all kinds", (i: number) => [i, 0]],
    ["lists of ten", (i: number) => [Math.floor(i / 10), i % 10]],
    ["one long list", (i: number) => [7, i]],
    ["lists of one", (i: number) => [i, 1 << 24]],
  ] as const)("accepts half a million entries quickly: %s", (_name, keyOf) => {
    const map = new PackedMap(4, 2, true);
    const key = new Int32Array(4);
    const start = ownMs();
    for (let i = 0; i < 500_000; i++) {
      [key[0], key[3]] = keyOf(i);
      map.findOrInsert(key);
    }
    const perEntry = ((ownMs() - start) * 1e6) / 500_000;
    expect(map.size).toBe(500_000);
    expect(perEntry).toBeLessThan(5_000);
  });
});

describe("RowList", () => {
  it("can grow", () => {
    const list = new RowList();
    for (let i = 0; i < 100; i++) list.push(i * 3);
    expect([...list.rows.subarray(0, list.length)]).toEqual(Array.from({ length: 100 }, (_, i) => i * 3));
  });
});

it("ceilPowerOfTwo rounds up", () => {
  expect([0, 1, 2, 3, 1023, 1024, 1025].map(ceilPowerOfTwo)).toEqual([1, 1, 2, 4, 1024, 1024, 2048]);
});

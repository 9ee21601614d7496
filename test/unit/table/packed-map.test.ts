import { describe, expect, it } from "vitest";

import { ceilPowerOfTwo, KEY, PackedMap, RowList, STATE } from "../../../src/table/elements/packed-map.js";

/** A small deterministic generator (mulberry32). */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 0x1_0000_0000;
  };
}

/** CPU time of this thread. */
function cpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

describe("PackedMap", () => {
  it.each([1, 2, 4, 7])("behaves as a Map with keys of %i words", (keyWords) => {
    const next = random(keyWords);
    const map = new PackedMap(keyWords, 1);
    const reference = new Map<string, number>();
    for (let step = 0; step < 20_000; step++) {
      const key = new Int32Array(keyWords);
      const number = Math.floor(next() * 700);
      key[0] = number & 0xff;
      key[keyWords - 1] |= (number >> 8) << (step % 2 === 0 ? 0 : 29);
      const text = key.join(".");
      if (next() < 0.45) {
        const row = map.find(key);
        expect(row >= 0).toBe(reference.has(text));
        if (row >= 0) map.remove(row);
        reference.delete(text);
      } else {
        const row = map.findOrInsert(key);
        expect(reference.get(text) ?? row).toBe(row);
        reference.set(text, row);
        const at = map.at(row) + KEY;
        expect([...map.words(row).subarray(at, at + keyWords)]).toEqual([...key]);
      }
      expect(map.size).toBe(reference.size);
    }
    for (const [text, row] of reference) expect(map.find(Int32Array.from(text.split("."), Number))).toBe(row);
  });

  it("keeps rows when it grows, and clears a row that is used again", () => {
    const map = new PackedMap(2, 1);
    const key = (n: number): Int32Array => Int32Array.of(n >> 3, n & 7);
    for (let i = 0; i < 20_000; i++) {
      const row = map.findOrInsert(key(i));
      map.words(row).set([1, i, ...key(i), ~i], map.at(row));
    }
    for (let i = 0; i < 20_000; i++) {
      const row = map.find(key(i));
      const at = map.at(row);
      const found = [...map.words(row).subarray(at, at + map.rowWords)];
      if (found.join() !== [1, i, ...key(i), ~i].join()) expect.fail(`${i}: ${found.join()}`);
    }
    const row = map.find(key(77));
    map.remove(row);
    expect(map.words(row)[map.at(row) + STATE]).toBe(0);
    expect(map.findOrInsert(key(99_999))).toBe(row);
    expect([...map.words(row).subarray(map.at(row), map.at(row) + 2)]).toEqual([0, 0]);
  });

  it("finds a key inside a larger buffer", () => {
    const map = new PackedMap(2, 0);
    const row = map.findOrInsert(Int32Array.of(9, 1, 2, 9), 1);
    expect(map.find(Int32Array.of(1, 2))).toBe(row);
    expect(map.find(Int32Array.of(9, 1))).toBe(-1);
  });

  it.each([1, 16, 17, 4_096, 4_097, 70_000])("has room for %i entries at once, and then for more", (count) => {
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

  it("knows a row by its key, until it is removed", () => {
    const map = new PackedMap(2, 0);
    const key = Int32Array.of(7, 1);
    expect(map.isAt(0, key)).toBe(false);
    const row = map.findOrInsert(key);
    map.words(row)[map.at(row) + STATE] = 1;
    expect([map.isAt(row, key), map.isAt(row, Int32Array.of(7, 2)), map.isAt(row, Int32Array.of(8, 1))]).toEqual([
      true,
      false,
      false,
    ]);
    map.remove(row);
    // Where a row is free there is the number of the next one, which may be the same as the key's first word.
    for (const word of [0, 7]) expect(map.isAt(row, Int32Array.of(word, 1))).toBe(false);
  });

  it("behaves as a Map when it is large, and when it shrinks and grows again", () => {
    const next = random(5);
    const map = new PackedMap(1, 0);
    const reference = new Map<number, number>();
    const key = new Int32Array(1);
    for (const chance of [0.9, 0.1, 0.8]) {
      for (let step = 0; step < 150_000; step++) {
        const number = Math.floor(next() * 200_000);
        key[0] = number;
        if (next() < chance) reference.set(number, map.findOrInsert(key));
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

  it("never stands still to grow", () => {
    const STEP = 2_000;
    const fill = (): number[] => {
      const map = new PackedMap(4, 2);
      const key = new Int32Array(4);
      return Array.from({ length: 600 }, (_, step) => {
        const before = cpuMs();
        for (let i = step * STEP; i < (step + 1) * STEP; i++) {
          key[1] = i;
          map.findOrInsert(key);
        }
        return cpuMs() - before;
      });
    };
    // The map does the same in each round; what the machine does besides comes at other steps each time.
    const rounds = [fill(), fill(), fill()];
    const steps = Array.from({ length: 600 }, (_, step) => Math.min(...rounds.map((round) => round[step] ?? 0)));
    const whole = steps.reduce((sum, ms) => sum + ms, 0);
    // To copy and rehash them all would take 60 ms and more, a fifth of all this.
    expect(Math.max(...steps)).toBeLessThan(Math.max(30, whole / 10));
  });

  it.each([
    ["keys of all kinds", (i: number) => [i, 0]],
    ["lists of ten", (i: number) => [Math.floor(i / 10), i % 10]],
    ["one long list", (i: number) => [7, i]],
    ["lists of one", (i: number) => [i, 1 << 24]],
  ] as const)("takes half a million entries in little time: %s", (_name, keyOf) => {
    const map = new PackedMap(4, 2);
    const key = new Int32Array(4);
    const start = cpuMs();
    for (let i = 0; i < 500_000; i++) {
      [key[0], key[3]] = keyOf(i);
      map.findOrInsert(key);
    }
    const perEntry = ((cpuMs() - start) * 1e6) / 500_000;
    expect(map.size).toBe(500_000);
    expect(perEntry).toBeLessThan(5_000);
  });
});

describe("RowList", () => {
  it("grows", () => {
    const list = new RowList();
    for (let i = 0; i < 100; i++) list.push(i * 3);
    expect([...list.rows.subarray(0, list.length)]).toEqual(Array.from({ length: 100 }, (_, i) => i * 3));
  });
});

it("ceilPowerOfTwo", () => {
  expect([0, 1, 2, 3, 1023, 1024, 1025].map(ceilPowerOfTwo)).toEqual([1, 1, 2, 4, 1024, 1024, 2048]);
});

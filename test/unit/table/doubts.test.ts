import { beforeEach, describe, expect, it } from "vitest";

import { isLater, nextGeneration } from "../../../src/kernel/generation.js";
import { Doubts } from "../../../src/table/sync/invalidations.js";

const foreign = (generation: number, ...sets: string[]) =>
  ({ cause: "foreign", reason: "somebody", generation, sets }) as const;

describe("Doubts", () => {
  let doubts: Doubts;
  /** A read of everything that saw that generation. */
  const read = (generation: number): void => {
    doubts.begin();
    doubts.settled(generation);
  };
  beforeEach(() => {
    doubts = new Doubts();
  });

  it("begin with a read of everything, before which nothing can be written", () => {
    expect([doubts.any, doubts.pressing]).toEqual([true, true]);
    expect(doubts.begin()).toMatchObject({ reason: "first read", sets: "all", believed: false });
    doubts.settled(5);
    expect([doubts.any, doubts.pressing]).toEqual([false, false]);
  });

  it("are about the sets that events name, until one is about everything", () => {
    read(5);
    doubts.add(foreign(6, "a"));
    doubts.add(foreign(7, "b", "a"));
    expect(doubts.pressing).toBe(false);
    expect(doubts.begin()).toMatchObject({ reason: "somebody", sets: new Set(["a", "b"]), believed: true });
    doubts.settled(undefined);
    doubts.add(foreign(8, "a"));
    doubts.add({ cause: "lost events", reason: "lost" });
    expect(doubts.begin()).toMatchObject({ reason: "somebody", sets: "all" });
  });

  it("of a change that a read has seen are none", () => {
    read(5);
    expect(doubts.add(foreign(5, "a"))).toBe(false);
    expect(doubts.add(foreign(4, "a"))).toBe(false);
    expect(doubts.any).toBe(false);
    expect(doubts.add(foreign(6, "a"))).toBe(true);
  });

  it("that come up during a read stay, unless it saw the change", () => {
    read(5);
    doubts.add(foreign(6));
    doubts.begin();
    doubts.add(foreign(7, "a"));
    doubts.settled(7);
    expect(doubts.any).toBe(false);
    doubts.add(foreign(8));
    doubts.begin();
    doubts.add(foreign(9, "a"));
    doubts.settled(8);
    expect(doubts.any).toBe(true);
    doubts.begin();
    doubts.add({ cause: "lost events", reason: "lost" });
    doubts.settled(100);
    expect(doubts.any).toBe(true);
  });

  it("stay when only a part was read: what was not may have changed", () => {
    read(5);
    doubts.add(foreign(6, "a"));
    doubts.begin();
    doubts.settled(undefined);
    expect(doubts.add(foreign(6, "b"))).toBe(true);
  });

  it("come back when the read failed, with those since", () => {
    read(5);
    doubts.add(foreign(6, "a"));
    doubts.begin();
    doubts.add(foreign(7, "b"));
    doubts.failed();
    expect(doubts.begin()).toMatchObject({ sets: new Set(["a", "b"]) });
    doubts.failed();
    doubts.begin();
    doubts.add({ cause: "outcome", reason: "lost reply" });
    doubts.failed();
    expect(doubts.pressing).toBe(true);
    expect(doubts.begin()).toMatchObject({ sets: "all", believed: false });
  });

  it("count generations across the end of 32 bits", () => {
    expect(isLater(1, 0xffffffff)).toBe(true);
    expect(isLater(0xffffffff, 1)).toBe(false);
    expect(isLater(7, 7)).toBe(false);
    expect([7, 0xffffffff].map(nextGeneration)).toEqual([8, 1]);
    read(0xfffffffe);
    expect(doubts.add(foreign(0xfffffffd))).toBe(false);
    expect(doubts.add(foreign(3, "a"))).toBe(true);
  });
});

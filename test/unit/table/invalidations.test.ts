import { beforeEach, describe, expect, it } from "vitest";

import { isLater, nextGeneration } from "../../../src/nft/kernel/generation.js";
import { believed, Invalidations } from "../../../src/nft/sync/invalidations.js";

const foreign = (generation: number, ...sets: string[]) =>
  ({ cause: "foreign", reason: "somebody", generation, sets }) as const;

describe("Invalidations", () => {
  let invalidations: Invalidations;
  /** A full read that saw that generation. */
  const read = (generation: number): void => {
    invalidations.begin();
    invalidations.settled(generation);
  };
  beforeEach(() => {
    invalidations = new Invalidations();
  });

  it("start with a full read, before which nothing can be written", () => {
    expect([invalidations.any, invalidations.pressing]).toEqual([true, true]);
    const scope = invalidations.begin();
    expect(scope).toMatchObject({ reason: "first read", sets: "all" });
    expect(believed(scope)).toBe(false);
    invalidations.settled(5);
    expect([invalidations.any, invalidations.pressing]).toEqual([false, false]);
  });

  it("concern the sets that events name, until one concerns everything", () => {
    read(5);
    invalidations.add(foreign(6, "a"));
    invalidations.add(foreign(7, "b", "a"));
    expect(invalidations.pressing).toBe(false);
    const scope = invalidations.begin();
    expect(scope).toMatchObject({ reason: "somebody", sets: new Set(["a", "b"]) });
    expect(believed(scope)).toBe(true);
    invalidations.settled(undefined);
    invalidations.add(foreign(8, "a"));
    invalidations.add({ cause: "lost events", reason: "lost" });
    expect(invalidations.begin()).toMatchObject({ reason: "somebody", sets: "all" });
  });

  it("a change that a read has seen causes no invalidation", () => {
    read(5);
    expect(invalidations.add(foreign(5, "a"))).toBe(false);
    expect(invalidations.add(foreign(4, "a"))).toBe(false);
    expect(invalidations.any).toBe(false);
    expect(invalidations.add(foreign(6, "a"))).toBe(true);
  });

  it("an invalidation during a read stays, unless the read saw the change", () => {
    read(5);
    invalidations.add(foreign(6));
    invalidations.begin();
    invalidations.add(foreign(7, "a"));
    invalidations.settled(7);
    expect(invalidations.any).toBe(false);
    invalidations.add(foreign(8));
    invalidations.begin();
    invalidations.add(foreign(9, "a"));
    invalidations.settled(8);
    expect(invalidations.any).toBe(true);
    invalidations.begin();
    invalidations.add({ cause: "lost events", reason: "lost" });
    invalidations.settled(100);
    expect(invalidations.any).toBe(true);
  });

  it("stay after a partial read, because the rest may have changed", () => {
    read(5);
    invalidations.add(foreign(6, "a"));
    invalidations.begin();
    invalidations.settled(undefined);
    expect(invalidations.add(foreign(6, "b"))).toBe(true);
  });

  it("return when the read failed, together with newer ones", () => {
    read(5);
    invalidations.add(foreign(6, "a"));
    const first = invalidations.begin();
    invalidations.add(foreign(7, "b"));
    invalidations.failed(first);
    const second = invalidations.begin();
    expect(second).toMatchObject({ sets: new Set(["a", "b"]) });
    invalidations.failed(second);
    const third = invalidations.begin();
    invalidations.add({ cause: "outcome", reason: "lost reply" });
    invalidations.failed(third);
    expect(invalidations.pressing).toBe(true);
    const scope = invalidations.begin();
    expect(scope).toMatchObject({ sets: "all" });
    expect(believed(scope)).toBe(false);
  });

  it("stay if events were lost during a read that saw the change before them", () => {
    read(5);
    invalidations.begin();
    invalidations.add(foreign(7, "a"));
    invalidations.add({ cause: "lost events", reason: "lost" });
    invalidations.settled(7);
    expect(invalidations.any).toBe(true);
  });

  it("count generations across the overflow of 32 bits", () => {
    expect(isLater(1, 0xffffffff)).toBe(true);
    expect(isLater(0xffffffff, 1)).toBe(false);
    expect(isLater(7, 7)).toBe(false);
    expect([7, 0xffffffff].map(nextGeneration)).toEqual([8, 1]);
    read(0xfffffffe);
    expect(invalidations.add(foreign(0xfffffffd))).toBe(false);
    expect(invalidations.add(foreign(3, "a"))).toBe(true);
  });
});

import { afterEach, beforeEach, describe } from "vitest";
import type { Kernel } from "../../../src/kernel/types.js";
import type { Bench, Open } from "../bench.js";
import { OF_THE_FAKE } from "../kernel-facts.js";
import { applying } from "./applying.js";
import { elements, recreating, restarting } from "./changes.js";
import { catchAll, drift, insertions, others } from "./drift.js";
import { notOwning, owning } from "./owning.js";
import { pieces } from "./pieces.js";
import { watching } from "./watching.js";

/** What the Table must do on every kernel; `facts`: what this one can. */
export function describeTable(name: string, open: Open, facts = OF_THE_FAKE): void {
  describe(`Table on ${name}`, () => {
    let bench: Bench;
    let kernel: Kernel;
    beforeEach(async () => {
      bench = await open();
      kernel = bench.kernel;
    });
    afterEach(() => bench.close());
    describe("applying", () => applying(() => kernel));
    describe("restarting", () => restarting(() => kernel));
    describe("what cannot be changed in place", () => recreating(() => kernel));
    describe("elements", () => elements(() => kernel));
    describe("elements in pieces", () => pieces(() => bench));
    describe("drift", () => drift(() => bench));
    if (facts.catchAll) describe("drift to elements for all keys", () => catchAll(() => bench));
    describe("watching", () => watching(() => bench));
    if (facts.persist) describe("owning", () => owning(() => bench));
    else describe("owning, where the kernel knows no such tables", () => notOwning(() => bench));
    describe("insertions", () => insertions(() => bench));
    describe("the rest", () => others(() => bench));
  });
}

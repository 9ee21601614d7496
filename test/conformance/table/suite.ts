import { afterEach, beforeEach, describe } from "vitest";
import type { Kernel } from "../../../src/nft/kernel/kernel.js";
import type { KernelWorld, OpenKernelWorld } from "../../support/kernel-world.ts";
import { OF_THE_FAKE } from "../../support/kernel-facts.ts";
import { applying } from "./applying.js";
import { elements, recreating, restarting } from "./changes.js";
import { catchAll, checksInTurn, drift, others } from "./drift.js";
import { insertions } from "./insertions.js";
import { notOwning, owning } from "./owning.js";
import { pieces } from "./pieces.js";
import { catchAlls, expiredCatchAlls, ranges } from "./ranges.js";
import { readingAhead } from "./reading-ahead.js";
import { tampering } from "./tampering.js";
import { takingOver } from "./taking-over.js";
import { watching } from "./watching.js";

/** Requirements on the Table with every kernel; `facts`: features of this one. */
export function describeTable(name: string, open: OpenKernelWorld, facts = OF_THE_FAKE): void {
  describe(`Table on ${name}`, () => {
    let world: KernelWorld;
    let kernel: Kernel;
    beforeEach(async () => {
      world = await open();
      kernel = world.kernel;
    });
    afterEach(() => world.close());
    describe("applying", () => applying(() => kernel));
    describe("restarting", () => restarting(() => kernel));
    describe("taking a table over", () => takingOver(() => kernel));
    describe("objects that cannot be changed in place", () => recreating(() => kernel));
    describe("elements", () => elements(() => kernel));
    describe("elements in pieces", () => pieces(() => world));
    describe("drift", () => drift(() => world));
    describe("a partial check", () => checksInTurn(() => world));
    describe("ranges", () => ranges(() => kernel, facts.catchAll));
    if (facts.catchAll) describe("catch-all elements", () => catchAlls(() => kernel));
    if (facts.destroy) describe("expired catch-all elements", () => expiredCatchAlls(() => kernel));
    if (facts.catchAll) describe("drift in catch-all elements", () => catchAll(() => world));
    describe("reading ahead", () => readingAhead(() => world));
    describe("tampering", () => tampering(() => world));
    describe("watching", () => watching(() => world));
    if (facts.persist) describe("ownership", () => owning(() => world));
    else describe("ownership, if the kernel does not support it", () => notOwning(() => world));
    describe("insertions", () => insertions(() => world));
    describe("other behaviour", () => others(() => world));
  });
}

/** The exports of the shipped addon: a function that only tests call would be code in every daemon. */
import { expect, test } from "vitest";
import { loadAddon } from "../../src/nft/kernel/addon.js";
import { addonCalls } from "../support/addon-calls.ts";
import { testAddon } from "./test-addon.js";

test("the shipped addon exports only the functions that the program calls", () => {
  expect(Object.keys(loadAddon()).toSorted()).toEqual(addonCalls());
});

test("the addon for tests exports nothing that the shipped one has", () => {
  const shipped = Object.keys(loadAddon());
  const own = Object.keys(testAddon);
  expect(own).toContain("encodeBatch");
  expect(own.filter((name) => shipped.includes(name))).toEqual([]);
});

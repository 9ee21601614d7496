/** The exports of the shipped addon: a function that only tests call would be code in every daemon. */
import { expect, test } from "vitest";
import { loadAddon } from "../../src/netlink/addon.js";
import { addonCalls } from "../support/addon-calls.ts";
import { testAddon } from "./test-addon.js";

test("the shipped addon exports what the program calls, and nothing else", () => {
  expect(Object.keys(loadAddon()).toSorted()).toEqual(addonCalls());
});

test("the tests' own addon exports nothing that the shipped one has", () => {
  const shipped = Object.keys(loadAddon());
  const own = Object.keys(testAddon);
  expect(own).toContain("encodeBatch");
  expect(own.filter((name) => shipped.includes(name))).toEqual([]);
});

import { expect, test } from "vitest";
import { isMeant, parseInterfaces } from "../../../src/flowtable/interfaces.js";

test("names and prefixes are each listed once", () => {
  expect(parseInterfaces("eth0")).toEqual(["eth0"]);
  expect(parseInterfaces("eth0, cali*,eth0,bond0.100")).toEqual(["eth0", "cali*", "bond0.100"]);
});

test.each([
  ...["", "eth0,", "*", "e*h0", "a-name-of-16-byte", "prefix-of-15-by*"],
  ...["with space", "a/b", "eth0:1", ".", "..", "@set", 'a"b'],
])("%j is not a possible interface name", (text) => expect(parseInterfaces(text)).toBeUndefined());

test("a pattern matches names or prefixes, and never the loopback interface", () => {
  const patterns = ["eth0", "cali*", "l*"];
  const names = ["eth0", "eth01", "cali", "cali1234", "xcali", "lo", "lxc1"];
  expect(names.filter((name) => isMeant(name, patterns))).toEqual(["eth0", "cali", "cali1234", "lxc1"]);
});

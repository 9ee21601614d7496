import { expect, test } from "vitest";
import { closest } from "../../../src/base/closest.js";

test("the nearest known name is returned, if there is one", () => {
  const known = ["clusterCIDR", "bindAddress", "mode"];
  expect(closest("clusterCidrs", known)).toBe("clusterCIDR");
  expect(closest("BINDADDRESS", known)).toBe("bindAddress");
  expect(closest("mod", known)).toBe("mode");
  expect(closest("replicas", known)).toBeUndefined();
  expect(closest("drop", ["dup", "log"])).toBeUndefined();
  expect(closest("name", ["base", "rules"])).toBeUndefined();
  expect(closest("rnu", ["run"])).toBe("run");
  expect(closest("x", [])).toBeUndefined();
});

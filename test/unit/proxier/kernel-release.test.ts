import { expect, test } from "vitest";
import { rejectsInPrerouting } from "../../../src/proxier/kernel-release.js";

test.each<[string, boolean]>([
  ["4.18.0-553.el8.x86_64", false],
  ["5.4.0-200-generic", false],
  ["5.8.18", false],
  ["5.9.0", true],
  ["5.10.0-33-amd64", true],
  ["6.18.44-fc-v445", true],
  ["10.0", true],
  ["odd", true],
])("a kernel %s knows reject in prerouting: %s", (release, known) => {
  expect(rejectsInPrerouting(release)).toBe(known);
});

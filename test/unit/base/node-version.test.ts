import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";

import { nodeProblem } from "../../../src/base/runtime.js";

test("an old Node prints the required version instead of a syntax error", async () => {
  const { engines } = JSON.parse(await readFile("package.json", "utf8")) as { engines: { node: string } };
  expect(engines.node).toBe(">=22.12");
  for (const version of ["22.12.0", "22.20.1", "24.0.0", process.versions.node])
    expect(nodeProblem(version)).toBe(undefined);
  for (const version of ["18.20.4", "20.19.2", "22.11.0"]) {
    expect(nodeProblem(version)).toContain(`this is Node ${version}, but Node 22.12 or later is required`);
  }
});

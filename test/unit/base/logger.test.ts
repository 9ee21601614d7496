import { expect, test } from "vitest";
import { levelOf } from "../../../src/base/logger.js";

test.each([
  [0, "info"],
  [2, "info"],
  [3, "info"],
  [4, "debug"],
  [5, "debug"],
  [6, "trace"],
  [10, "trace"],
])("-v=%d logs from %s on", (verbosity, level) => {
  expect(levelOf(verbosity)).toBe(level);
});

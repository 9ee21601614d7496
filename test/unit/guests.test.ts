import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const TESTS = join(import.meta.dirname, "..");

test("tests in guests, which have no compiler, compile only the helpers that their image contains", () => {
  const files = globSync(["native/**/*.ts", "packets/**/*.ts", "conformance/**/*.ts"], { cwd: TESTS });
  expect(files.length).toBeGreaterThan(100);
  const imported = files.flatMap((file) => {
    const found = /^import \{([^}]*)\} from "[^"]*lab\/build\.[jt]s";/m.exec(readFileSync(join(TESTS, file), "utf8"));
    return found === null ? [] : [`${file}: ${found[1]?.trim()}`];
  });
  expect(imported.filter((text) => !text.endsWith(": buildHelper"))).toEqual([]);
  // This builds them on the machine that makes the image, for both architectures.
  expect(
    readFileSync(join(TESTS, "kernels/binaries.ts"), "utf8").match(/^ {2}buildHelpers\((?:toolchain)?\);$/gm),
  ).toHaveLength(2);
});

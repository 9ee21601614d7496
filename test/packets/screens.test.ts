/** Commands and their whole screens: a script for each situation, in screens/. CONTRIBUTING.md says how to write and update them. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { patience } from "../lab/patience.ts";
import { played, titleOf } from "./support/screen-script.ts";

const DIRECTORY = join(import.meta.dirname, "screens");

const scripts = readdirSync(DIRECTORY).map((name) => {
  const text = readFileSync(join(DIRECTORY, name), "utf8");
  return [titleOf(text), name, text] as const;
});

// A session starts up to twenty programs.
test.each(scripts)("%s (%s)", { timeout: patience(400_000) }, async (_, name, text) => {
  await expect(await played(text)).toMatchFileSnapshot(join(DIRECTORY, name));
});

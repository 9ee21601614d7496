/** Log messages that docs/troubleshooting.md explains, and that operators' alerts match, exist in the sources word by word. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "../../..");

const sources = readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".ts"))
  .map((name) => readFileSync(join(ROOT, "src", name), "utf8"))
  .join("\n");

/** Messages of the table under "| message | meaning |", each as the fragments between what varies. */
const troubleshooting = readFileSync(join(ROOT, "docs/troubleshooting.md"), "utf8");
const [, rows = ""] = troubleshooting.split(/^\| message \|.*\n\|[-|: ]+\n/m);
const table = rows.split("\n\n")[0];
const messages = table
  .split("\n")
  .flatMap((row) => Array.from((row.split(" | ")[0] ?? "").matchAll(/`([^`]+)`/g), ([, message = ""]) => message));

test("the table of log messages is found", () => {
  expect(messages.length).toBeGreaterThan(50);
});

test.each(messages)("%s", (message) => {
  const fragments = message.split(/[…:;]/).map((fragment) => fragment.replace(/^[\s,;]+|[\s,;]+$/g, ""));
  expect(fragments.filter((fragment) => fragment !== "" && !sources.includes(fragment))).toEqual([]);
});

/** Messages of `status` and of the log that the documents explain, and that operators' alerts match, exist in the sources word by word. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "../../..");

const sources = readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".ts"))
  .map((name) => readFileSync(join(ROOT, "src", name), "utf8"))
  .join("\n");

const documents = ["troubleshooting.md", "commands.md"].map((name) => readFileSync(join(ROOT, "docs", name), "utf8"));

/** First cells of each table whose first column is "message". */
const tables = documents
  .flatMap((text) => text.split(/^\| message \|.*\n\|[-|: ]+\n/m).slice(1))
  .map((rows) =>
    rows
      .split("\n\n", 1)[0]
      .split("\n")
      .map((row) => row.slice("| ".length).split(" | ", 1)[0]),
  );
const messages = tables.flat().flatMap((cell) => Array.from(cell.matchAll(/`([^`]+)`/g), ([, message]) => message));

test("the tables of messages are found", () => {
  expect(tables).toHaveLength(2);
  expect(messages.length).toBeGreaterThan(75);
});

test("the tables of messages are in alphabetical order", () => {
  for (const cells of tables) {
    const words = cells.map((cell) =>
      cell
        .toLowerCase()
        .replaceAll(/[^\w ]/g, "")
        .trim(),
    );
    expect(words).toEqual(words.toSorted());
  }
});

// Each message as the fragments between the varying parts.
test.each(messages)("%s", (message) => {
  const fragments = message.split(/[…:;]/).map((fragment) => fragment.replace(/^[\s,;]+|[\s,;]+$/g, ""));
  expect(fragments.filter((fragment) => fragment !== "" && !sources.includes(fragment))).toEqual([]);
});

/** Tables and facts for people, on terminals of any width. */
import { describe, expect, test } from "vitest";
import { type Column, Table, tableLines } from "../../../src/cli/text/text-table.js";
import { factLines, wrap } from "../../../src/cli/text/terminal.js";

interface Row {
  readonly name: string;
  readonly note?: string;
  readonly state: string;
}

const COLUMNS: readonly Column<Row>[] = [
  { title: "NAME", text: ({ name }) => name },
  { title: "NOTE", drop: 1, text: ({ note = "" }) => note },
  { title: "STATE", text: ({ state }) => state },
  { title: "WIDE", wide: true, text: () => "w" },
];
const ROWS: readonly Row[] = [
  { name: "default/web", note: "a note", state: "active" },
  { name: "shop/a-very-long-name-of-a-service", state: "rejected" },
];
const WHOLE = { headers: true, width: undefined };

describe("a table", () => {
  test("aligns its columns, and shows a dash for a missing text", () => {
    expect(tableLines(COLUMNS, ROWS, WHOLE)).toEqual([
      "NAME                                NOTE    STATE",
      "default/web                         a note  active",
      "shop/a-very-long-name-of-a-service  -       rejected",
    ]);
  });

  test("first omits the column that matters least, then shortens the longest texts", () => {
    expect(tableLines(COLUMNS, ROWS, { headers: true, width: 48 })[0]).toMatch(/^NAME +STATE$/);
    expect(tableLines(COLUMNS, ROWS, { headers: true, width: 30 })).toEqual([
      "NAME                  STATE",
      "default/web           active",
      "shop/a-ve…-a-service  rejected",
    ]);
  });

  test("never exceeds the width, however narrow it is", () => {
    for (let width = 10; width < 60; width++) {
      for (const line of tableLines(COLUMNS, ROWS, { headers: true, width })) {
        expect(line.length).toBeLessThanOrEqual(width);
      }
    }
  });

  test("shows everything if it is wide, and no titles if none are wanted", () => {
    expect(tableLines(COLUMNS, ROWS, { headers: false, wide: true, width: 20 })[1]).toBe(
      "shop/a-very-long-name-of-a-service  -       rejected  w",
    );
  });

  test("omits an optional column without texts", () => {
    const columns = COLUMNS.map((column) => ({ ...column, optional: true }));
    expect(tableLines(columns, [ROWS[1]], WHOLE)[0]).toMatch(/^NAME +STATE$/);
  });

  test("prints rows as they come once the layout is decided", () => {
    const table = new Table(COLUMNS, { ...WHOLE, sample: 1 });
    expect(table.add(ROWS[0])).toHaveLength(2);
    expect(table.add(ROWS[1])).toHaveLength(1);
    expect(table.flush()).toEqual([]);
  });

  test("escapes control characters", () => {
    expect(tableLines(COLUMNS, [{ name: "a\u001b[31m", state: "x" }], WHOLE)[1]).toContain("a\\u001b[31m");
  });
});

test("facts are wrapped between words below their first line, and unknown ones are omitted", () => {
  expect(
    factLines([
      ["node", "here"],
      ["gone", undefined],
      ["health", "ok"],
    ]),
  ).toEqual(["node    here", "health  ok"]);
  expect(wrap("name  one two three", 6, 14)).toEqual(["name  one two", "      three"]);
  expect(wrap("name  unbreakable-word", 6, 10)).toEqual(["name", "      unbreakable-word"]);
  expect(wrap("  two  columns here", 4, 14)).toEqual(["  two  columns", "    here"]);
  expect(wrap("no limit at all", 3, undefined)).toEqual(["no limit at all"]);
});

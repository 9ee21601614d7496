/** Foreign text, as printed to a terminal. */
import { expect, test } from "vitest";
import { columns, linesText } from "../../../src/base/columns.js";
import { printable, printableLines } from "../../../src/base/printable.js";

test.each([
  ["plain ä 漢 …", "plain ä 漢 …"],
  ["\u001b]0;title\u0007", "\\u001b]0;title\\u0007"],
  ["\u009b2J\u007f", "\\u009b2J\\u007f"],
  ["a\r\nb\tc", "a\\r\\nb\\tc"],
  ["\u202eevil\u2066\u061c\u200b\ufeff", "\\u202eevil\\u2066\\u061c\\u200b\\ufeff"],
  ["\u2028\u2029", "\\u2028\\u2029"],
  ["tag \u{e0041}", "tag \\udb40\\udc41"],
])("%j", (text, expected) => {
  expect(printable(text)).toBe(expected);
  expect(printable(expected)).toBe(expected);
});

test("lines keep their line feeds and tabs, and JSON keeps its meaning", () => {
  const value = { "a\u009b": "b\u202e\u0085\n" };
  const text = `\t${JSON.stringify(value)}\n`;
  expect(printableLines(text)).toMatch(/^\t[ -~]*\n$/);
  expect(JSON.parse(printableLines(text))).toEqual(value);
});

test("cells and lines cannot forge others, and columns are as wide as their text", () => {
  expect(
    columns([
      ["a\nb", "c"],
      ["d", "\u001b[2J"],
    ]),
  ).toEqual(["a\\nb  c", "d     \\u001b[2J"]);
  expect(linesText(["ok", "x\nFORGED"])).toBe("ok\nx\\nFORGED\n");
});

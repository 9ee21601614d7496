import { describe, expect, test } from "vitest";
import { commentsOf } from "../prose/comments.ts";
import { proseProblems } from "../prose/prose.ts";

test("commentsOf() keeps the lines of comments, and no strings", () => {
  const source = ["/** First.", " * Second. */", 'const a = "// no"; // Third.', "/* Fourth. */ f(`/* no */`);"].join(
    "\n",
  );
  expect(commentsOf(source)).toBe(["First.", "Second. ", "- Third.", "Fourth. "].join("\n"));
});

describe("proseProblems()", () => {
  test.each([
    ["a.ts", "/** Of two services, the older. */", ["1: Of  => a noun or an imperative"]],
    ["a.ts", "\n// What the kernel holds.", ["2: What  => a sentence with its subject"]],
    ["a.cc", "// Reads it; undefined: unknown.", ["1: ; undefined: => Undefined if …"]],
    ["a.md", "The table is written anew.", ["1: anew => again, from scratch"]],
    ["a.md", "## What it does", []],
    ["a.ts", 'const text = "anew"; // In a string it is data.', []],
  ])("%s: %j", async (name, text, problems) => {
    expect(await proseProblems(name, text)).toEqual(problems);
  });

  const words = (count: number): string => Array.from({ length: count }, () => "word").join(" ");

  test.each([
    ["a paragraph", "a.md", `Short.\n\n${words(30)}. ${words(31)}.`, 3],
    ["a cell", "a.md", `| a | b |\n|---|---|\n| ${words(30)} | ${words(31)} |`, 3],
    ["a heading", "a.md", `# ${words(31)}`, 1],
    ["an item", "a.md", `- ${words(30)}, \`a b\` [c](https://example.com)`, 1],
    ["a comment", "a.ts", `\n// ${words(31)}`, 2],
  ])("a sentence of more than 30 words is reported: %s", async (_, name, text, line) => {
    expect(await proseProblems(name, text)).toEqual([
      expect.stringMatching(new RegExp(`^${line}: 3[12] words, more than 30: word word .* …$`)),
    ]);
  });

  test.each([
    ["items", `- ${words(30)}\n- ${words(30)}`],
    ["cells", `| ${words(30)} | ${words(30)} |\n|---|---|`],
    ["sentences; code in the text is one word", `${words(29)} \`some words of code\`. ${words(30)}?`],
    ["code blocks are not counted", `    ${words(40)}`],
  ])("counted alone: %s", async (_, text) => {
    expect(await proseProblems("a.md", text)).toEqual([]);
  });
});

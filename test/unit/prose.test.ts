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

  test("a long sentence is reported at its first line", async () => {
    const [problem] = await proseProblems("a.md", `Short.\n\n${"a very long one ".repeat(20)}.`);
    expect(problem).toMatch(/^3: .*exceeds the maximum sentence length of 200/);
  });
});

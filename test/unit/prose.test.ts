import { describe, expect, test } from "vitest";
import { commentsOf } from "../prose/comments.ts";
import { messagesOf } from "../prose/messages.ts";
import { proseProblems, textProblems } from "../prose/prose.ts";

test("commentsOf() keeps the lines of comments, and no strings", () => {
  const source = ["/** First.", " * Second. */", 'const a = "// no"; // Third.', "/* Fourth. */ f(`/* no */`);"].join(
    "\n",
  );
  expect(commentsOf(source)).toBe(["First.", "Second. ", "- Third.", "Fourth. "].join("\n"));
});

describe("messagesOf()", () => {
  test.each([
    ["a log message", 'log.warn({ err }, "reading of all tables failed");', ["reading of all tables failed"]],
    [
      "parts of one text",
      'throw new Error("the first part, " +\n  `and the ${n} others`);',
      ["the first part, and the … others"],
    ],
    [
      "a text in another one",
      'f(`one two three four ${a ? "five six seven eight" : ""}`);',
      ["one two three four …", "five six seven eight"],
    ],
    ["names and keys", 'import x from "a b c d.js"; f("dump sets", `${a} ${b}`);', []],
    ["a type", 'type A = "one two three four";', []],
  ])("%s", (_, source, texts) => {
    expect(messagesOf(source).map(({ text }) => text)).toEqual(texts);
  });

  test("a message has the line where it begins", () => {
    expect(messagesOf('\n\nf(\n  "a text of five words",\n);')).toEqual([{ line: 4, text: "a text of five words" }]);
  });
});

test("textProblems() checks each message and each help text on its own", async () => {
  const problems = await textProblems([
    { place: "src/a.ts:7", text: "the rules are in force" },
    { place: "src/a.ts:9", text: "the file is missing: run `f in force`" },
    { place: "nft-proxier top --help", text: "What the screen shows\n\nis written anew" },
  ]);
  expect(problems).toEqual([
    "src/a.ts:7: in force => active",
    "nft-proxier top --help: What  => a sentence with its subject",
    "nft-proxier top --help: anew => again, from scratch",
  ]);
});

describe("proseProblems()", () => {
  test.each([
    ["a.ts", "/** Of two services, the older. */", ["1: Of  => a noun or an imperative"]],
    ["a.ts", "\n// What the kernel holds.", ["2: What  => a sentence with its subject"]],
    ["a.cc", "// Reads it; undefined: unknown.", ["1: ; undefined: => Undefined if …"]],
    ["a.md", "The table is written anew.", ["1: anew => again, from scratch"]],
    ["a.md", "## What it does", []],
    ["a.ts", 'const text = "anew"; // In a string it is data.', []],
    ["a.txtar", "# It is written anew.\n-- session --\n$ say anew\nanew\n", ["1: anew => again, from scratch"]],
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

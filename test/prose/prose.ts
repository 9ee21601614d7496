/**
 * Checks every sentence that a person reads in Markdown, in comments and in help texts: its length (sentence-words.ts), and
 * the phrases and terms of patterns.yml (textlint-rule-prh).
 *
 *   node test/prose/prose.ts [FILE...]     all files by default
 */
import { TextlintKernel, type TextlintMessage } from "@textlint/kernel";
import markdown from "@textlint/textlint-plugin-markdown";
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import prh from "textlint-rule-prh";
import { commentsOf } from "./comments.ts";
import { sentenceWords } from "./sentence-words.ts";

const ROOT = path.resolve(import.meta.dirname, "../..");
const FILES = ["*.md", "{deploy,docs,examples,native,src,test}/**/*.{ts,mjs,cc,h,hpp,md}"];
/** The released part of CHANGELOG.md is history; the generated files follow what they are generated from. */
const EXCEPT = ["**/node_modules/**", "docs/api/**", "test/prose/*", "test/unit/prose.test.ts"];

/** Words in a sentence. */
const MAX_WORDS = 30;

const PATTERNS = path.join(import.meta.dirname, "patterns.yml");
const COMMENT_PATTERNS = path.join(import.meta.dirname, "comment-patterns.yml");

/** A CommonJS module's default export, whichever way it was compiled. */
function exportOf<T extends object>(module: T | { default: T }): T {
  return "default" in module ? module.default : module;
}

/** Problems in a text, as "line: message". In a source, only the comments are read; ".md" and ".txt" are read whole. */
export async function proseProblems(name: string, text: string): Promise<string[]> {
  const isSource = !/\.(?:md|txt)$/.test(name);
  const rulePaths = isSource ? [PATTERNS, COMMENT_PATTERNS] : [PATTERNS];
  const { messages } = await new TextlintKernel().lintText(isSource ? commentsOf(text) : text, {
    filePath: name,
    ext: ".md",
    plugins: [{ pluginId: "markdown", plugin: exportOf(markdown) }],
    rules: [
      { ruleId: "sentence-words", rule: sentenceWords, options: { max: MAX_WORDS } },
      { ruleId: "prh", rule: exportOf(prh), options: { rulePaths } },
    ],
  });
  return messages.map(({ line, message }: TextlintMessage) => `${line}: ${message.split("\n")[0]}`);
}

if (import.meta.main) {
  const files =
    process.argv.length > 2 ? process.argv.slice(2) : globSync(FILES, { cwd: ROOT, exclude: EXCEPT }).sort();
  for (const file of files) {
    // One after the other: each holds the thread.
    // oxlint-disable-next-line no-await-in-loop
    for (const problem of await proseProblems(file, readFileSync(path.resolve(ROOT, file), "utf8"))) {
      console.log(`${file}:${problem}`);
      process.exitCode = 1;
    }
  }
}

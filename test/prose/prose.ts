/**
 * Checks every sentence that a person reads in Markdown, comments, messages of src/ and help texts: its length
 * (sentence-words.ts), and the phrases and terms of patterns.yml (textlint-rule-prh).
 *
 *   node test/prose/prose.ts [FILE...]     all files by default
 */
import { TextlintKernel, type TextlintMessage } from "@textlint/kernel";
import markdown from "@textlint/textlint-plugin-markdown";
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import prh from "textlint-rule-prh";
import { commentsOf } from "./comments.ts";
import { helpTexts } from "./help.ts";
import { messagesOf } from "./messages.ts";
import { sentenceWords } from "./sentence-words.ts";

const ROOT = path.resolve(import.meta.dirname, "../..");
const FILES = ["*.md", "{deploy,docs,examples,native,src,test}/**/*.{ts,tsx,mjs,cc,h,hpp,md,txtar}"];
/** The released part of CHANGELOG.md is history; the generated files follow what they are generated from. */
const EXCEPT = ["**/node_modules/**", "docs/api/**", "test/prose/*", "test/unit/prose.test.ts"];

/** Words in a sentence. */
const MAX_WORDS = 30;

const PATTERNS = path.join(import.meta.dirname, "patterns.yml");
const COMMENT_PATTERNS = path.join(import.meta.dirname, "comment-patterns.yml");
const MESSAGE_PATTERNS = path.join(import.meta.dirname, "message-patterns.yml");

/** Files whose strings are tables of names, or kube-proxy's words. */
const SILENT = new Set([
  "src/base/protocols.ts",
  "src/objects/manifests/known-fields.ts",
  "src/observe/kube-proxy-metrics.ts",
]);

/** A CommonJS module's default export, whichever way it was compiled. */
function exportOf<T extends object>(module: T | { default: T }): T {
  return "default" in module ? module.default : module;
}

/** The lines of a script that begin with "# ". Every other line is empty. */
function scriptComments(text: string): string {
  return text.replaceAll(/^(?!# ).*$/gm, "").replaceAll(/^# /gm, "");
}

/** Problems in a text, as "line: message". In a source, only the comments are read; ".md" and ".txt" are read whole. */
export async function proseProblems(name: string, text: string): Promise<string[]> {
  const isSource = !/\.(?:md|txt)$/.test(name);
  const rulePaths = isSource ? [PATTERNS, COMMENT_PATTERNS] : [PATTERNS];
  const comments = name.endsWith(".txtar") ? scriptComments : commentsOf;
  const problems = await problemsOf(name, isSource ? comments(text) : text, rulePaths);
  return problems.map(({ line, message }) => `${line}: ${message}`);
}

/** A text outside of a document, and where it is. */
interface PlacedText {
  readonly place: string;
  readonly text: string;
}

/** Problems in messages and help texts, as "PLACE: message". */
export async function textProblems(texts: readonly PlacedText[]): Promise<string[]> {
  // One document for all: a document for each would take minutes.
  const list = texts.map(({ text }) => `- ${text.replaceAll(/\s+/g, " ")}`).join("\n");
  const problems = await problemsOf("texts.md", list, [PATTERNS, COMMENT_PATTERNS, MESSAGE_PATTERNS]);
  return problems.map(({ line, message }) => `${texts[line - 1]?.place}: ${message}`);
}

/** The messages in a source of src/. */
function messagesIn(file: string): PlacedText[] {
  if (!/^src\/.*\.tsx?$/.test(file) || SILENT.has(file)) return [];
  const messages = messagesOf(readFileSync(path.resolve(ROOT, file), "utf8"), file.endsWith("x") ? "tsx" : "ts");
  return messages.map(({ line, text }) => ({ place: `${file}:${line}`, text }));
}

async function problemsOf(name: string, prose: string, rulePaths: readonly string[]) {
  const { messages } = await new TextlintKernel().lintText(prose, {
    filePath: name,
    ext: ".md",
    plugins: [{ pluginId: "markdown", plugin: exportOf(markdown) }],
    rules: [
      { ruleId: "sentence-words", rule: sentenceWords, options: { max: MAX_WORDS } },
      { ruleId: "prh", rule: exportOf(prh), options: { rulePaths } },
    ],
  });
  return messages.map(({ line, message }: TextlintMessage) => ({ line, message: message.split("\n")[0] }));
}

if (import.meta.main) {
  const given = process.argv.slice(2);
  const files = given.length > 0 ? given : globSync(FILES, { cwd: ROOT, exclude: EXCEPT }).sort();
  const help = given.length > 0 ? [] : await helpTexts(ROOT);
  const problems = await textProblems([...help, ...files.flatMap(messagesIn)]);
  for (const file of files) {
    // One after the other: each holds the thread.
    // oxlint-disable-next-line no-await-in-loop
    const found = await proseProblems(file, readFileSync(path.resolve(ROOT, file), "utf8"));
    problems.push(...found.map((problem) => `${file}:${problem}`));
  }
  for (const problem of problems) console.log(problem);
  if (problems.length > 0) process.exitCode = 1;
}

/** Files and npm scripts that documents link to or name exist. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "../../..");

const documents = [
  ...readdirSync(ROOT).filter((name) => name.endsWith(".md")),
  ...["docs", "src", "native", "test", "deploy", "examples"].flatMap((directory) =>
    existsSync(join(ROOT, directory))
      ? readdirSync(join(ROOT, directory), { recursive: true, encoding: "utf8" })
          .filter((name) => name.endsWith(".md") && !name.includes("node_modules"))
          .map((name) => join(directory, name))
      : [],
  ),
];

/** A name in another directory than those searched. */
const elsewhere = new Set(["vitest.config.ts"]);

/** Directories to which a name in backticks may be relative. */
const BASES = ["", "src", "test", "src/nft", "src/ruleset"];

const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { scripts: Record<string, string> };

/** Files of the checkout that commands read, relative to the root. What the build writes is not there yet. */
const FILE_OF_COMMAND = /(?<![\w./=*-])(?:deploy|docs|examples|native|src|test)\/[\w./-]*\w/g;

describe.each(documents)("%s", (document) => {
  const text = readFileSync(join(ROOT, document), "utf8");

  test("every relative link leads to a file, and to a heading in it", () => {
    const links = [...text.matchAll(/\]\((?!https?:|mailto:)([^)\s]+)\)/g)].map(([, link]) => link);
    const broken = links.filter((link) => {
      const [path = "", heading] = link.split("#");
      const file = path === "" ? join(ROOT, document) : join(ROOT, dirname(document), path);
      if (!existsSync(file)) return true;
      return heading !== undefined && !headings(readFileSync(file, "utf8")).has(heading);
    });
    expect(broken).toEqual([]);
  });

  test("every named source file exists", () => {
    const named = [...text.matchAll(/`([\w.-]+(?:\/[\w.-]+)*\/[\w.-]+\.(?:ts|mjs|cc|h|hpp|sh|yaml))`/g)].map(
      ([, name]) => name,
    );
    const bases = [...BASES, dirname(document)];
    expect(named.filter((name) => !bases.some((base) => existsSync(join(ROOT, base, name))))).toEqual([]);
  });

  test("every file and npm script in a command exists", () => {
    // CHANGELOG.md names files and scripts of older versions.
    const code = document === "CHANGELOG.md" ? [] : [...text.matchAll(/^ {4,}(.*)|`([^`\n]+)`/gm)];
    const commands = code
      .map(([, line, span]) => line ?? span)
      .filter((words) => /\b(?:node|npm|docker|kubectl|nft-proxier)\b/.test(words));
    const files = commands.flatMap((line) => line.match(FILE_OF_COMMAND) ?? []);
    expect(files.filter((name) => !existsSync(join(ROOT, name)))).toEqual([]);
    const named = commands.flatMap((line) => [...line.matchAll(/\bnpm run ([a-z][\w:-]*)/g)].map(([, name]) => name));
    expect(named.filter((name) => !Object.hasOwn(scripts, name))).toEqual([]);
  });
});

/** Converts headings to anchors as GitHub does. */
function headings(text: string): Set<string> {
  const titles = [...text.matchAll(/^#+ +(.*)$/gm)].map(([, title]) => title);
  return new Set(
    titles.map((title) =>
      title
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
        .replaceAll(" ", "-"),
    ),
  );
}

test("comments name no missing TypeScript file", () => {
  const sources = ["src", "test", "deploy", "native"].flatMap((directory) =>
    readdirSync(join(ROOT, directory), { recursive: true, encoding: "utf8" })
      .filter((name) => /\.(ts|mjs|cc|h|hpp)$/.test(name) && !name.includes("node_modules"))
      .map((name) => join(directory, name)),
  );
  const isThere = (name: string): boolean => sources.some((source) => `/${source}`.endsWith(`/${name}`));
  const stale = sources.flatMap((source) =>
    readFileSync(join(ROOT, source), "utf8")
      .split("\n")
      .filter((line) => /^\s*(\*|\/\/|\/\*)/.test(line))
      .flatMap((line) => [...line.matchAll(/(?<![\w`./-])((?:[\w.-]+\/)*[a-z][\w-]*\.ts)\b/g)].map(([, name]) => name))
      .map((name) => name.replace(/^(\.\.?\/)+/, ""))
      .filter((name) => !isThere(name) && !elsewhere.has(name))
      .map((name) => `${source}: ${name}`),
  );
  expect(stale).toEqual([]);
});

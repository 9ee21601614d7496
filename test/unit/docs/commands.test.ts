/** Commands in the documents exist, and accept the arguments and options that they are shown with. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { ALL_FLAGS } from "../../../src/cli/flags/flags-help.js";
import { argumentProblems } from "../../../src/cli/command.js";
import { programNamed } from "../../../src/cli/commands/program.js";
import { readFlags } from "../../../src/cli/read-flags.js";
import { DEPLOY_PAGES } from "../../support/deploy-pages.js";

const ROOT = join(import.meta.dirname, "../../..");

const documents = [
  "README.md",
  "SECURITY.md",
  ...DEPLOY_PAGES,
  "deploy/chart/monitoring/alerts.yaml",
  ...readdirSync(join(ROOT, "docs"))
    .filter((name) => name.endsWith(".md"))
    .map((name) => join("docs", name)),
];

/** Lines of code blocks, and code within text. A line that starts with an option continues the one before. */
function codeOf(text: string): string[] {
  const joined = text.replaceAll(/\n {6,}(?=\[-)/g, " ");
  return [...joined.matchAll(/^ {4,}(?:\$ )?(.*)/gm), ...joined.matchAll(/`([^`\n]+)`/g)].map(([, code]) =>
    code.trim(),
  );
}

/** The program's words. Of "[-o json|yaml]", the first choice is tried. Comments, pipes and redirections end a command. */
function commandsOf(document: string): string[] {
  const commands = codeOf(readFileSync(join(ROOT, document), "utf8")).flatMap((code) => {
    const [, words] = /(?:^|-- |<\()(?:\S*node )?(?:\S*\/)?(?:nft-proxier|kube-proxy|main\.js) (.*)/.exec(code) ?? [];
    const [command] = words?.split(/ # | +# | > | \| |[`)]/) ?? [];
    return (
      command
        ?.replaceAll(/[[\]…]/g, "")
        .replaceAll(/\|\S+/g, "")
        .trim() ?? []
    );
  });
  return [...new Set(commands)];
}

const found = documents.map((document) => ({ document, commands: commandsOf(document) }));

test("the commands are found", () => {
  const names = found.flatMap(({ commands }) => commands.map((command) => command.split(" ")[0]));
  expect(new Set(names.filter((name) => !name.startsWith("-"))).size).toBeGreaterThan(12);
});

describe.each(found.filter(({ commands }) => commands.length > 0))("$document", ({ commands }) => {
  test.each(commands)("nft-proxier %s", (text) => {
    const { rest, problems } = readFlags(text.split(/\s+/), ALL_FLAGS);
    expect(problems).toEqual([]);
    const words = [...rest];
    let command = programNamed();
    for (let next; (next = command.commands?.find(({ name }) => name === words[0])) !== undefined; words.shift())
      command = next;
    const given = readFlags(words, command.flags ?? [], true);
    // A synopsis lists all options.
    const wrong = given.problems.filter((problem) => !problem.includes("cannot be used with"));
    expect([...wrong, ...argumentProblems(command, given.rest)]).toEqual([]);
  });
});

/** Commands in docs/troubleshooting.md exist, and accept the arguments and options that they are shown with. */
import type { Command } from "commander";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { program } from "../../../src/cli/program.js";

const troubleshooting = readFileSync(join(import.meta.dirname, "../../../docs/troubleshooting.md"), "utf8");

/** Lines of code blocks, and code within text. */
const code = [...troubleshooting.matchAll(/^ {4}(?:\$ )?(.*)/gm), ...troubleshooting.matchAll(/`([^`\n]+)`/g)].map(
  ([, text]) => text,
);

/** Of "[-o json|yaml]", the first choice is tried. Comments, pipes and redirections end a command. */
const commands = code.flatMap((text) => {
  const [, words] = /(?:^|-- |<\()nft-proxier( .*)/.exec(text) ?? [];
  const [command] = words?.split(/ # | > | \| |[`)]/) ?? [];
  return command?.trim().replaceAll(/[[\]]/g, "").replaceAll(/\|\S+/g, "") ?? [];
});

test("the commands are found", () => {
  expect(new Set(commands.map((command) => command.split(" ")[0])).size).toBeGreaterThan(8);
});

test.each([...new Set(commands)])("nft-proxier %s", async (text) => {
  const words = text.split(/\s+/);
  let command: Command = (await program("nft-proxier", words, () => undefined)).exitOverride();
  while (words.length > 0) {
    const found = command.commands.find((each) => each.name() === words[0]);
    if (found === undefined) break;
    command = found.exitOverride();
    words.shift();
  }
  const { operands, unknown } = command.parseOptions(words);
  expect(unknown).toEqual([]);
  // `preflight` reads kube-proxy's flags itself.
  expect(command).not.toHaveProperty("given.problems.0");
  const { registeredArguments: declared } = command;
  expect(operands.length).toBeGreaterThanOrEqual(declared.filter(({ required }) => required).length);
  expect(operands.length).toBeLessThanOrEqual(declared.some(({ variadic }) => variadic) ? Infinity : declared.length);
});

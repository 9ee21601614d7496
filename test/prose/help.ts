import path from "node:path";
import { pathToFileURL } from "node:url";
import type * as commands from "../../src/cli/command.js";
import type * as program from "../../src/cli/commands/program.js";

/**
 * The texts in every command's `--help`: descriptions, options, arguments, notes and purposes of examples. Reads them from
 * dist/, which must be compiled.
 */
export async function helpTexts(root: string): Promise<{ readonly place: string; readonly text: string }[]> {
  const compiled = (file: string): string => pathToFileURL(path.join(root, "dist/cli", file)).href;
  const { programNamed } = (await import(compiled("commands/program.js"))) as typeof program;
  const { allCommands, describe, shownFlags } = (await import(compiled("command.js"))) as typeof commands;
  return allCommands(programNamed()).flatMap((command) => {
    const { description, notes = "", examples, arguments: words = [] } = command;
    const place = ["nft-proxier", ...(command.path === "" ? [] : [command.path]), "--help"].join(" ");
    const items = [...shownFlags(command), ...words].map(describe);
    // The program's own notes list flags.
    const texts = [description, ...items, command.path === "" ? "" : notes, ...examples.map(([purpose]) => purpose)];
    return texts.filter((text) => text !== "").map((text) => ({ place, text }));
  });
}

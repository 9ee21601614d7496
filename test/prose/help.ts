import path from "node:path";
import { pathToFileURL } from "node:url";
import type * as program from "../../src/cli/commands/program.js";

/**
 * The texts in every command's `--help`: descriptions, options, arguments, notes and purposes of examples. Reads them from
 * dist/, which must be compiled.
 */
export async function helpTexts(root: string): Promise<{ readonly place: string; readonly text: string }[]> {
  const compiled = pathToFileURL(path.join(root, "dist/cli/commands/program.js")).href;
  const { commandOutline } = (await import(compiled)) as typeof program;
  return (await commandOutline()).flatMap(({ path: command, description, notes, examples, ...lists }) => {
    const items = [...lists.options, ...lists.arguments].map((item) => item.description);
    const place = ["nft-proxier", ...(command === "" ? [] : [command]), "--help"].join(" ");
    const texts = [description, ...items, notes, ...examples.map(([purpose]) => purpose)];
    return texts.filter((text) => text !== "").map((text) => ({ place, text }));
  });
}

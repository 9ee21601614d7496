/** The comments of a vocabulary's entries, from its source. */
import { readFileSync } from "node:fs";

const SOURCE = readFileSync(new URL("../../src/nft/language/vocabulary.ts", import.meta.url), "utf8");

/** Returns the comments of the entries of an object such as MATCHES, each in one line. An entry's key is "ENTRY.KEY". */
export function docstrings(object: string): ReadonlyMap<string, string> {
  const [, body] = new RegExp(String.raw`const ${object} = \{\n(.*?)^\}`, "ms").exec(SOURCE) ?? [];
  if (body === undefined) throw new Error(`vocabulary.ts has no ${object}`);
  const found = new Map<string, string>();
  let entry = "";
  for (const [, comment, indent, quoted] of body.matchAll(
    /(?:\/\*\*((?:(?!\*\/).)*)\*\/\s*)?^( {2}| {4})([\w-]+|"[\w-]+"):/gms,
  )) {
    const name = quoted.replaceAll('"', "");
    if (indent.length === 2) entry = name;
    if (comment === undefined) continue;
    const text = comment.replaceAll(/\s*\n\s*\*?\s*/g, " ").trim();
    found.set(indent.length === 2 ? name : `${entry}.${name}`, text);
  }
  return found;
}

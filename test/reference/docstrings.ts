/** The comments of a vocabulary's entries, from its source. */
import { readFileSync } from "node:fs";

/** Returns the comments of the entries of an object such as NAT in a file of src/nft/, each in one line. An entry's key is "ENTRY.KEY". */
export function docstrings(object: string, file: string): ReadonlyMap<string, string> {
  const source = readFileSync(new URL(`../../src/nft/${file}`, import.meta.url), "utf8");
  const [, body] = new RegExp(String.raw`const ${object} = \{\n(.*?)^\}`, "ms").exec(source) ?? [];
  if (body === undefined) throw new Error(`${file} has no ${object}`);
  const found = new Map<string, string>();
  let entry = "";
  for (const [, comment, indent, quoted] of body.matchAll(
    /(?:\/\*\*((?:(?!\*\/).)*)\*\/\s*)?^( {2}| {4}| {6})([\w-]+|"[\w-]+"):/gms,
  )) {
    const name = quoted.replaceAll('"', "");
    if (indent.length === 2) entry = name;
    if (comment === undefined) continue;
    const text = comment.replaceAll(/\s*\n\s*\*?\s*/g, " ").trim();
    found.set(indent.length === 2 ? name : `${entry}.${name}`, text);
  }
  return found;
}

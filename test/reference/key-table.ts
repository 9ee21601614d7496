/** A table of an object's keys, from its shape. */
import type { Fields } from "../../dist/base/shape.js";
import { oneOf } from "../../dist/base/shape.js";
import { name } from "../../dist/nft/language/vocabulary.js";
import { FIELDS, SHORT_FIELDS } from "../../dist/nft/language/fields/packet-fields.js";
import { cell, valuesText } from "./nft-text.ts";

/** The page says once what a name is. */
const NAME = "a name";
const ANY_FIELD = oneOf(...Object.keys(FIELDS), ...Object.keys(SHORT_FIELDS)).expected;
/** Longer lists of names are those of fields. */
const FIELD_NAMES = /one of ether daddr, .*/;

/** @param docs comments of keys, as "OWNER.KEY" */
export function keyTable(owner: string, fields: Fields, docs: ReadonlyMap<string, string>): string {
  const rows = Object.entries(fields).map(([key, shape]) => {
    const expected =
      shape.expected === name.expected
        ? NAME
        : shape.expected.replace(ANY_FIELD, "a field").replace(FIELD_NAMES, "a field that can be set");
    const isOptional = "optional" in shape ? "optional" : "";
    const doc = docs.get(`${owner}.${key}`);
    return `| \`${key}\` | ${isOptional} | ${valuesText(expected)}${doc === undefined ? "" : `. ${cell(doc)}`} |`;
  });
  return rows.length === 0 ? "No other keys." : ["| key | | value |", "|---|---|---|", ...rows].join("\n");
}

/** nft's text of examples, in each family. */
import { FieldError } from "../../dist/nft/language/fields/field-error.js";
import type { Statement } from "../../dist/nft/statements/rule.js";
import type { SetSpec } from "../../dist/nft/handles/set-spec.js";
import type { Family } from "../../dist/nft/kernel/kernel.js";
import { lowerRule, printRule } from "../../dist/nft/statements/lower-rule.js";

export const FAMILIES: readonly Family[] = ["ip", "ip6", "inet", "arp", "bridge", "netdev"];

/** Returns the text of the statements in each family. Families whose tables refuse the rule have no entry. */
export function textsOf(statements: readonly Statement[], sets: readonly SetSpec[] = []): Map<Family, string> {
  const texts = new Map<Family, string>();
  for (const family of FAMILIES) {
    const text = textIn(family, statements, sets);
    if (text !== undefined) texts.set(family, text);
  }
  return texts;
}

function textIn(family: Family, statements: readonly Statement[], sets: readonly SetSpec[]): string | undefined {
  const setSpec = (name: string): SetSpec | undefined => sets.find(({ set }) => set === name);
  try {
    const rule = { statements };
    lowerRule(rule, { family, setSpec });
    return printRule(rule, { family, setSpec });
  } catch (error) {
    if (error instanceof FieldError) return undefined;
    throw error;
  }
}

/** A page says that tables of the family have the rule with this text. */
export interface Claim {
  readonly family: Family;
  readonly text: string;
}

export function statementsOf(example: Statement | readonly Statement[]): readonly Statement[] {
  return Array.isArray(example) ? (example as readonly Statement[]) : [example as Statement];
}

export function claimsOf(examples: readonly (Statement | readonly Statement[])[], sets?: readonly SetSpec[]): Claim[] {
  return examples.flatMap((example) =>
    [...textsOf(statementsOf(example), sets)].map(([family, text]) => ({ family, text })),
  );
}

/** "ip, inet", "all", or "all but arp". */
export function familiesText(families: readonly Family[]): string {
  const others = FAMILIES.filter((family) => !families.includes(family));
  if (others.length === 0) return "all";
  return others.length <= 2 ? `all but ${others.join(", ")}` : families.join(", ");
}

/** A value as JavaScript, in one line. */
export function javascript(value: unknown): string {
  if (value instanceof Uint8Array) return `Uint8Array.of(${value.join(", ")})`;
  if (Array.isArray(value)) return `[${value.map(javascript).join(", ")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  return `{ ${Object.entries(value)
    .map(([key, one]) => `${key}: ${javascript(one)}`)
    .join(", ")} }`;
}

/** The values that a shape expects, with names as code. */
export function valuesText(expected: string): string {
  const quote = (names: string): string =>
    names
      .split(", ")
      .map((name) => `\`${name}\``)
      .join(", ");
  return cell(expected.replace(/(?<=one of )[^."]*$/, quote));
}

/** A cell of a table in Markdown. */
export function cell(text: string): string {
  return text.replaceAll("|", String.raw`\|`);
}

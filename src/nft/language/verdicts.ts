/** Verdicts in nft's syntax. */
import { value } from "../../base/shape.js";
import type { Verdict } from "../kernel/kernel.js";
import { FieldError } from "./fields/field-error.js";

/** "accept", "drop", "return", "continue", "jump CHAIN" or "goto CHAIN". */
export type VerdictText = "accept" | "drop" | "return" | "continue" | `${"jump" | "goto"} ${string}`;

const PLAIN: ReadonlySet<string> = new Set(["accept", "drop", "return", "continue"]);

export const VERDICT = value<VerdictText>(
  '"accept", "drop", "return", "continue", "jump CHAIN" or "goto CHAIN"',
  (given) => verdictOf(given) !== undefined,
);

function verdictOf(given: unknown): Verdict | undefined {
  if (typeof given !== "string") return undefined;
  if (PLAIN.has(given)) return { verdict: given as "accept" };
  const [, verdict, chain] = /^(jump|goto) (\S+)$/.exec(given) ?? [];
  return verdict === undefined ? undefined : { verdict: verdict as "jump", chain };
}

/** Parses a verdict. Throws FieldError. */
export function parseVerdict(given: unknown): Verdict {
  const verdict = verdictOf(given);
  if (verdict === undefined) throw new FieldError("verdict", VERDICT.expected, given);
  return verdict;
}

export function verdictText(verdict: Verdict): VerdictText {
  return ("chain" in verdict ? `${verdict.verdict} ${verdict.chain}` : verdict.verdict) as VerdictText;
}

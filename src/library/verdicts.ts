/** Verdicts as nft writes them. */
import type { Verdict } from "../kernel/types.js";
import { FieldError } from "./fields.js";

/** "accept", "drop", "return", "continue"; "jump CHAIN", "goto CHAIN". */
export type VerdictText = "accept" | "drop" | "return" | "continue" | `${"jump" | "goto"} ${string}`;

const EXPECTED = '"accept", "drop", "return", "continue", "jump CHAIN" or "goto CHAIN"';
const PLAIN: ReadonlySet<string> = new Set(["accept", "drop", "return", "continue"]);

/** Reads a verdict; `where` names the field in the error. Throws FieldError. */
export function parseVerdict(where: string, given: unknown): Verdict {
  if (typeof given !== "string") throw new FieldError(where, EXPECTED, given);
  if (PLAIN.has(given)) return { verdict: given as "accept" };
  const [, verdict, chain] = /^(jump|goto) (\S+)$/.exec(given) ?? [];
  if (verdict === undefined) throw new FieldError(where, EXPECTED, given);
  return { verdict: verdict as "jump", chain };
}

export function verdictText(verdict: Verdict): VerdictText {
  return ("chain" in verdict ? `${verdict.verdict} ${verdict.chain}` : verdict.verdict) as VerdictText;
}

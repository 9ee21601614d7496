/** Annotations that say how a service's connections are spread. What cannot be read asks for nothing, with a report. */
import { type Fields, isFields } from "../../base/unknown.js";
import { type Balance, BALANCE_KEYS, SLOT_COUNTS } from "../../model/balance.js";
import { type FieldProblems, show } from "./fields.js";

const PREFIX = "nft-proxier.dev/";
const BALANCE = `${PREFIX}balance`;
const KEY = `${PREFIX}balance-key`;
const SLOTS = `${PREFIX}balance-slots`;
const MODES = ["random", "consistent"] as const;

/** Undefined: drawn at random, of all endpoints alike. */
export function readBalance(metadata: Fields, hasAffinity: boolean, problems: FieldProblems): Balance | undefined {
  const annotations = metadata["annotations"];
  if (!isFields(annotations) || annotations[BALANCE] === undefined) return undefined;
  if (choice(annotations, BALANCE, MODES, problems) !== "consistent") return undefined;
  if (hasAffinity) {
    problems.report(field(BALANCE), "is ignored: with sessionAffinity ClientIP a client keeps its endpoint already");
    return undefined;
  }
  const by = choice(annotations, KEY, BALANCE_KEYS, problems);
  const slots = Number(choice(annotations, SLOTS, ["0", ...SLOT_COUNTS.map(String)], problems));
  return { by, slots };
}

function field(annotation: string): string {
  return `metadata.annotations["${annotation}"]`;
}

/** The first of `allowed` is the default. */
function choice<T extends string>(
  annotations: Fields,
  name: string,
  allowed: readonly [T, ...T[]],
  problems: FieldProblems,
): T {
  const value = annotations[name];
  const [unset] = allowed;
  if (value === undefined) return unset;
  const chosen = allowed.find((one) => one === value);
  if (chosen !== undefined) return chosen;
  problems.report(field(name), `${show(value)} is none of ${allowed.join(", ")}; ${unset} is assumed`);
  return unset;
}

/** Annotations that control how a service's connections are spread. An invalid value is reported, and has no effect. */
import { type Fields, isFields } from "../../base/unknown.js";
import { parseAddress } from "../../base/ip.js";
import { type Balance, BALANCE_KEYS, MAX_WEIGHT, SLOT_COUNTS, type Weights } from "../balance.js";
import { annotationChoice, annotationField, notText } from "./annotations.js";
import { type FieldProblems, show } from "./field-problems.js";

const BALANCE = "balance";
const KEY = "balance-key";
const SLOTS = "balance-slots";
const WEIGHTS = "weights";
const MODES = ["random", "consistent"] as const;

/** Returns undefined if the choice is random and all endpoints are alike. */
export function readBalance(metadata: Fields, hasAffinity: boolean, problems: FieldProblems): Balance | undefined {
  const annotations = metadata["annotations"];
  if (!isFields(annotations)) return undefined;
  const weights = readWeights(annotations[annotationField(WEIGHTS).key], problems);
  const consistent = annotationChoice(annotations, BALANCE, MODES, problems) === "consistent";
  // Always read these, to report invalid values.
  const key = annotationChoice(annotations, KEY, BALANCE_KEYS, problems);
  const slots = Number(annotationChoice(annotations, SLOTS, ["0", ...SLOT_COUNTS.map(String)], problems));
  if (!consistent && weights === undefined) return undefined;
  if (hasAffinity) {
    const why = "is ignored, because sessionAffinity ClientIP already keeps each client at one endpoint";
    if (consistent) problems.refuse(annotationField(BALANCE).path, why);
    if (weights !== undefined) problems.refuse(annotationField(WEIGHTS).path, why);
    return undefined;
  }
  return { by: consistent ? key : "chance", slots, weights };
}

/**
 * "zone=a:3, 10.244.1.7:5, [fd00::7]:0". The weight follows the last colon. Without brackets, that colon could be part of an
 * IPv6 address.
 */
function readWeights(value: unknown, problems: FieldProblems): Weights | undefined {
  if (value === undefined) return undefined;
  const zones = new Map<string, number>();
  const addresses = new Map<string, number>();
  const report = (what: string): undefined => {
    problems.report(annotationField(WEIGHTS).path, `${what}; all endpoints get the same weight`);
  };
  const refuse = (item: string, why: string): undefined => report(`${show(item)} ${why}`);
  if (typeof value !== "string") return report(notText(value) ?? "");
  for (const item of value.split(",").map((part) => part.trim())) {
    const [, name = "", number = ""] = /^(\S+):(\d{1,4})$/.exec(item) ?? [];
    if (name === "" || Number(number) > MAX_WEIGHT) {
      return refuse(item, `is not zone=NAME:WEIGHT or ADDRESS:WEIGHT with a weight of 0 to ${MAX_WEIGHT}`);
    }
    const zone = name.startsWith("zone=") ? name.slice("zone=".length) : undefined;
    const address = zone === undefined ? parseAddress(name.replace(/^\[(.*:.*)\]$/, "$1")) : undefined;
    if (address !== undefined && name.includes(":") && !name.startsWith("[")) {
      return refuse(item, "is not [ADDRESS]:WEIGHT, the form for IPv6 addresses");
    }
    const named = address ?? zone ?? "";
    if (named === "") return refuse(item, "has neither a zone nor an IP address");
    const weights = address === undefined ? zones : addresses;
    if (weights.has(named)) return refuse(item, "repeats a zone or address that already has a weight");
    weights.set(named, Number(number));
  }
  return { zones, addresses };
}

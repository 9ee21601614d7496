/**
 * Annotations that limit a service's connections. An invalid value is reported, and sets the strictest limit: it must not
 * restrict access less than it was meant to.
 */
import { type Fields, isFields } from "../../base/unknown.js";
import { LIMIT_ACTIONS, type Limits, MAX_LIMIT, type Rate, RATE_UNITS } from "../connection-limits.js";
import { annotationChoice, annotationField, annotationNumber, notText } from "./annotations.js";
import { type FieldProblems, show } from "./field-problems.js";

const CONNECTIONS = "max-connections";
const CLIENT_CONNECTIONS = "max-connections-per-client";
const RATE = "rate-per-client";
const ACTION = "over-limit";
const STRICTEST = 1;
const STRICTEST_RATE: Rate = { count: 1, per: "hour", burst: 1 };

export function readLimits(metadata: Fields, problems: FieldProblems): Limits | undefined {
  const annotations = metadata["annotations"];
  if (!isFields(annotations)) return undefined;
  const connections = annotationNumber(annotations, CONNECTIONS, MAX_LIMIT, problems, STRICTEST);
  const clientConnections = annotationNumber(annotations, CLIENT_CONNECTIONS, MAX_LIMIT, problems, STRICTEST);
  const rate = readRate(annotations, problems);
  const action = annotationChoice(annotations, ACTION, LIMIT_ACTIONS, problems);
  if (connections === 0 && clientConnections === 0 && rate === undefined) return undefined;
  return { connections, clientConnections, rate, action };
}

/** nft's notation: "10/second", "10/second burst 20". The default burst is one second's connections, or 5. */
function readRate(annotations: Fields, problems: FieldProblems): Rate | undefined {
  const { key, path } = annotationField(RATE);
  const value = annotations[key];
  if (value === undefined) return undefined;
  const text = typeof value === "string" ? value : "";
  const [, digits = "", unit = "", burstDigits] = /^(\d{1,7})\/(\w+)(?: burst (\d{1,7}))?$/.exec(text) ?? [];
  const per = RATE_UNITS.find((one) => one === unit);
  const count = Number(digits);
  const burst = burstDigits === undefined ? Math.max(5, per === "second" ? count : 0) : Number(burstDigits);
  const within = (number: number): boolean => number >= 1 && number <= MAX_LIMIT;
  if (per !== undefined && within(count) && within(burst)) return { count, per, burst };
  const form = `NUMBER/${RATE_UNITS.join("|")} [burst NUMBER], with numbers from 1 to ${MAX_LIMIT}`;
  problems.report(path, `${notText(value) ?? `${show(value)} is not ${form}`}; using 1/hour burst 1`);
  return STRICTEST_RATE;
}

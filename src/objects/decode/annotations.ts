/** Annotations of our own. */
import { closest } from "../../base/closest.js";
import type { Fields } from "../../base/unknown.js";
import { type FieldProblems, show } from "./field-problems.js";

const PREFIX = "nft-proxier.dev/";
/** Those of a Service. */
const NAMES = [
  "balance",
  "balance-key",
  "balance-slots",
  "weights",
  "max-connections",
  "max-connections-per-client",
  "rate-per-client",
  "over-limit",
  "drain-seconds",
  "reset-removed-endpoints",
] as const;
export type AnnotationName = (typeof NAMES)[number];

/** Its key among the annotations, and its path as problems name it. */
export function annotationField(name: AnnotationName): { readonly key: string; readonly path: string } {
  return fieldOf(PREFIX + name);
}

function fieldOf(key: string): { readonly key: string; readonly path: string } {
  return { key, path: `metadata.annotations["${key}"]` };
}

/** A name with our prefix that is none of ours is a mistake, which would otherwise look like a setting in force. */
export function reportUnknown(annotations: Fields, problems: FieldProblems): void {
  for (const key in annotations) {
    if (!key.startsWith(PREFIX)) continue;
    const name = key.slice(PREFIX.length);
    if (NAMES.some((one) => one === name)) continue;
    const meant = closest(name, NAMES);
    const hint = meant === undefined ? "" : `; did you mean ${PREFIX}${meant}?`;
    problems.refuse(fieldOf(key).path, `is no annotation of a Service's, and is ignored${hint}`);
  }
}

/** One of `allowed`, whose first is the default: absent, and with a report anything else, read as that. */
export function annotationChoice<T extends string>(
  annotations: Fields,
  name: AnnotationName,
  allowed: readonly [T, ...T[]],
  problems: FieldProblems,
): T {
  const { key, path } = annotationField(name);
  const value = annotations[key];
  const [unset] = allowed;
  if (value === undefined) return unset;
  const chosen = allowed.find((one) => one === value);
  if (chosen !== undefined) return chosen;
  problems.report(path, `${notText(value) ?? `${show(value)} is none of ${allowed.join(", ")}`}; ${unset} is assumed`);
  return unset;
}

/** A number from 1 to `most`; 0: absent, and with a report anything else. */
export function annotationNumber(
  annotations: Fields,
  name: AnnotationName,
  most: number,
  problems: FieldProblems,
): number {
  const { key, path } = annotationField(name);
  const value = annotations[key];
  if (value === undefined) return 0;
  const number = typeof value === "string" && /^\d{1,7}$/.test(value) ? Number(value) : 0;
  if (number >= 1 && number <= most) return number;
  problems.report(path, `${notText(value) ?? `${show(value)} is not a number from 1 to ${most}`}; it is ignored`);
  return 0;
}

/** Annotations are text: an unquoted number or boolean of a YAML file is not what the API server would take. */
export function notText(value: unknown): string | undefined {
  return typeof value === "string" ? undefined : `${show(value)} is not text, as annotations are: write it in quotes`;
}

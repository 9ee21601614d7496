/** Our own annotations. */
import { closest } from "../../base/closest.js";
import type { Fields } from "../../base/unknown.js";
import { type FieldProblems, show } from "./field-problems.js";

const PREFIX = "nft-proxier.dev/";
/** Annotations of a Service. */
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
type AnnotationName = (typeof NAMES)[number];

/** An annotation's key, and its path in problems. */
export function annotationField(name: AnnotationName): { readonly key: string; readonly path: string } {
  return fieldOf(PREFIX + name);
}

function fieldOf(key: string): { readonly key: string; readonly path: string } {
  return { key, path: `metadata.annotations["${key}"]` };
}

/** Reports unknown names with our prefix: such a mistake would otherwise look like an active setting. */
export function reportUnknown(annotations: Fields, problems: FieldProblems): void {
  for (const key in annotations) {
    if (!key.startsWith(PREFIX)) continue;
    const name = key.slice(PREFIX.length);
    if (NAMES.some((one) => one === name)) continue;
    const meant = closest(name, NAMES);
    const hint = meant === undefined ? "" : ` (did you mean ${PREFIX}${meant}?)`;
    problems.refuse(fieldOf(key).path, `is not a known annotation, and is ignored${hint}`);
  }
}

/** One of `allowed`; the first is the default. A missing value yields the default, and so does an invalid one, with a report. */
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
  problems.report(path, `${notText(value) ?? `${show(value)} is not one of ${allowed.join(", ")}`}; using ${unset}`);
  return unset;
}

/** A number from 1 to `most`, or 0 if it is missing. Any other value is reported, and yields `invalid`. */
export function annotationNumber(
  annotations: Fields,
  name: AnnotationName,
  most: number,
  problems: FieldProblems,
  invalid = 0,
): number {
  const { key, path } = annotationField(name);
  const value = annotations[key];
  if (value === undefined) return 0;
  const number = typeof value === "string" && /^\d{1,7}$/.test(value) ? Number(value) : 0;
  if (number >= 1 && number <= most) return number;
  problems.report(
    path,
    `${notText(value) ?? `${show(value)} is not a number from 1 to ${most}`}; ${invalid === 0 ? "it is ignored" : `using ${invalid}`}`,
  );
  return invalid;
}

/** Annotations are text. An unquoted number or boolean in a YAML file is a mistake, because the API server would reject it. */
export function notText(value: unknown): string | undefined {
  return typeof value === "string" ? undefined : `${show(value)} is not text (put it in quotes)`;
}

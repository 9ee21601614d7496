/** Annotations of our own. */
import type { Fields } from "../../base/unknown.js";
import { type FieldProblems, show } from "./fields.js";

/** Its key among the annotations, and its path as problems name it. */
export function annotationField(name: string): { readonly key: string; readonly path: string } {
  const key = `nft-proxier.dev/${name}`;
  return { key, path: `metadata.annotations["${key}"]` };
}

/** One of `allowed`, whose first is the default: absent, and with a report anything else, read as that. */
export function annotationChoice<T extends string>(
  annotations: Fields,
  name: string,
  allowed: readonly [T, ...T[]],
  problems: FieldProblems,
): T {
  const { key, path } = annotationField(name);
  const value = annotations[key];
  const [unset] = allowed;
  if (value === undefined) return unset;
  const chosen = allowed.find((one) => one === value);
  if (chosen !== undefined) return chosen;
  problems.report(path, `${show(value)} is none of ${allowed.join(", ")}; ${unset} is assumed`);
  return unset;
}

/** A number from 1 to `most`; 0: absent, and with a report anything else. */
export function annotationNumber(annotations: Fields, name: string, most: number, problems: FieldProblems): number {
  const { key, path } = annotationField(name);
  const value = annotations[key];
  if (value === undefined) return 0;
  const number = typeof value === "string" && /^\d{1,7}$/.test(value) ? Number(value) : 0;
  if (number >= 1 && number <= most) return number;
  problems.report(path, `${show(value)} is not a number from 1 to ${most}; it is ignored`);
  return 0;
}

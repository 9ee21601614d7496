import { counted } from "../base/counted.js";
import type { StatusProblem } from "./status-report.js";

/** Maximum number of problems of one kind to name. The count of the others is reported. */
const NAMED = 10;
export const LOG_LISTS = "read the log, which lists all of them";

/** Returns the first problems of one kind, and one with the count of the others, which `remedy` shows. */
export function few(
  problems: readonly StatusProblem[],
  [one, many]: readonly [string, string],
  remedy: string,
): readonly StatusProblem[] {
  const more = problems.length - NAMED;
  if (more <= 0) return problems;
  return [...problems.slice(0, NAMED), { what: counted(more, `more ${one}`, `more ${many}`), remedy }];
}

/** The findings of a check of the node. */

/** In the order of a report within each level. */
const AREAS = ["mode", "configuration", "kernel", "other programs", "objects"] as const;
type Area = (typeof AREAS)[number];

/**
 * - problem: something would fail or be lost with the change-over.
 * - note: worth knowing, or not visible from here.
 * - ok: checked without obstacles.
 */
export const LEVELS = ["problem", "note", "ok"] as const;
export type Level = (typeof LEVELS)[number];

export interface Finding {
  readonly level: Level;
  readonly area: Area;
  /** Name of the check, the same in each release: "node-ports". */
  readonly check: string;
  /** The observation and its consequence. */
  readonly what: string;
  /** The recommended action. Absent if there is none. */
  readonly remedy?: string;
}

/** A finding as the check returns it. The caller adds area and name. */
export type Said = Pick<Finding, "level" | "what" | "remedy">;

export const problem = (what: string, remedy: string): Said => ({ level: "problem", what, remedy });
export const note = (what: string, remedy?: string): Said => ({ level: "note", what, remedy });
export const ok = (what: string): Said => ({ level: "ok", what });

export function of(area: Area, check: string, said: readonly Said[]): Finding[] {
  return said.map((one) => ({ area, check, ...one }));
}

/** Problems first, then notes, each in the order of areas. */
export function inOrder(findings: readonly Finding[]): Finding[] {
  const rank = ({ level, area }: Finding): number => LEVELS.indexOf(level) * AREAS.length + AREAS.indexOf(area);
  return findings.toSorted((a, b) => rank(a) - rank(b));
}

export { someOf as named } from "../../base/counted.js";

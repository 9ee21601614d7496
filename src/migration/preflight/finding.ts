/** What a look at the node came to, point by point. */

/** In the order in which a report has them, within a level. */
export const AREAS = ["mode", "configuration", "kernel", "other software", "objects"] as const;
export type Area = (typeof AREAS)[number];

/**
 * problem: something would fail or be lost with the change-over; note: to be known, or not to be seen from here; ok: looked at, and nothing
 * is in the way.
 */
export const LEVELS = ["problem", "note", "ok"] as const;
export type Level = (typeof LEVELS)[number];

export interface Finding {
  readonly level: Level;
  readonly area: Area;
  /** Which check it is of, the same in each release: "node-ports". */
  readonly check: string;
  /** What was seen, and what comes of it. */
  readonly what: string;
  /** What to do; absent: nothing. */
  readonly remedy?: string;
}

/** What a check says of itself: its area and name are its caller's. */
export type Said = Pick<Finding, "level" | "what" | "remedy">;

export const problem = (what: string, remedy: string): Said => ({ level: "problem", what, remedy });
export const note = (what: string, remedy?: string): Said => ({ level: "note", what, remedy });
export const ok = (what: string): Said => ({ level: "ok", what });

export function of(area: Area, check: string, ...said: readonly Said[]): Finding[] {
  return said.map((one) => ({ area, check, ...one }));
}

/** Problems first, then notes; areas in their order. */
export function inOrder(findings: readonly Finding[]): Finding[] {
  const rank = ({ level, area }: Finding): number => LEVELS.indexOf(level) * AREAS.length + AREAS.indexOf(area);
  return findings.toSorted((a, b) => rank(a) - rank(b));
}

/** "a, b and 3 more". */
export function named(names: readonly string[], most = 5): string {
  const more = names.length - most;
  return names.slice(0, most).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

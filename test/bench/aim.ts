/** A figure and what it should be. */
export interface Aim {
  readonly what: string;
  /** At most. */
  readonly aim: number;
  readonly measured: number;
  readonly unit: string;
  readonly met: boolean;
  /** What else belongs to it. */
  readonly note?: string;
}

export function atMost(what: string, aim: number, measured: number, unit: string, note = ""): Aim {
  return { what, aim, measured, unit, met: measured <= aim, ...(note === "" ? {} : { note }) };
}

/** A measured figure and its aim. */
export interface Aim {
  readonly what: string;
  /** The upper limit. */
  readonly aim: number;
  readonly measured: number;
  readonly unit: string;
  readonly met: boolean;
  /** An additional remark. */
  readonly note?: string;
}

export function atMost(what: string, aim: number, measured: number, unit: string, note = ""): Aim {
  return { what, aim, measured, unit, met: measured <= aim, ...(note === "" ? {} : { note }) };
}

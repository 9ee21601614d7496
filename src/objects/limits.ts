/** What a service asks to be kept from its endpoints. Of each service port, on each node, in each family for itself. */
export interface Limits {
  /** Open at a time; 0: any number. */
  readonly connections: number;
  /** Open at a time of each client; 0: any number. */
  readonly clientConnections: number;
  /** New connections of each client; undefined: any number. */
  readonly rate: Rate | undefined;
  /** What becomes of a connection beyond a limit. */
  readonly action: LimitAction;
}

export interface Rate {
  readonly count: number;
  readonly per: (typeof RATE_UNITS)[number];
  /** How many may come at once. */
  readonly burst: number;
}

export const LIMIT_ACTIONS = ["reject", "drop"] as const;
export type LimitAction = (typeof LIMIT_ACTIONS)[number];
export const RATE_UNITS = ["second", "minute", "hour"] as const;
/** More is as good as no limit. */
export const MAX_LIMIT = 1_000_000;

/** Limits that protect a service's endpoints. They apply to each service port, on each node and in each family separately. */
export interface Limits {
  /** Maximum of open connections; 0: no limit. */
  readonly connections: number;
  /** Maximum of open connections per client; 0: no limit. */
  readonly clientConnections: number;
  /** Limit of new connections per client; undefined if there is none. */
  readonly rate: Rate | undefined;
  /** Action for a connection beyond a limit. */
  readonly action: LimitAction;
}

export interface Rate {
  readonly count: number;
  readonly per: (typeof RATE_UNITS)[number];
  /** How many connections may come at once. */
  readonly burst: number;
}

export const LIMIT_ACTIONS = ["reject", "drop"] as const;
type LimitAction = (typeof LIMIT_ACTIONS)[number];
export const RATE_UNITS = ["second", "minute", "hour"] as const;
/** A larger value is as good as no limit. */
export const MAX_LIMIT = 1_000_000;

/** How a service asks its connections to be spread: annotation nft-proxier.dev/balance and those beside it. */
export interface Balance {
  /** What of a connection decides on its endpoint, on every node alike; "chance": it is drawn. */
  readonly by: BalanceKey | "chance";
  /** Slots of each list; 0: by the number of endpoints. */
  readonly slots: number;
  /** Undefined: all endpoints alike. */
  readonly weights: Weights | undefined;
}

/** An endpoint that is not named has weight 1. */
export interface Weights {
  /** By name of the zone. */
  readonly zones: ReadonlyMap<string, number>;
  /** By canonical address: goes before the zone's. */
  readonly addresses: ReadonlyMap<string, number>;
}

export const BALANCE_KEYS = ["source-ip", "source-ip-port"] as const;
export type BalanceKey = (typeof BALANCE_KEYS)[number];

/** Slots that a list may have. Each is an element of the kernel's map, for each VIP. */
export const SLOT_COUNTS = [256, 1024, 4096, 16_384] as const;

export const MAX_WEIGHT = 1000;

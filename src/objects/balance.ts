/** How a service wants its connections spread: annotation nft-proxier.dev/balance and related ones. */
export interface Balance {
  /** The part of a connection that decides on its endpoint, on every node alike; "chance": the endpoint is random. */
  readonly by: BalanceKey | "chance";
  /** Slots of each list; 0: depends on the number of endpoints. */
  readonly slots: number;
  /** Undefined if all endpoints are alike. */
  readonly weights: Weights | undefined;
}

/** Weights of endpoints. An unlisted endpoint has weight 1. */
export interface Weights {
  /** By zone name. */
  readonly zones: ReadonlyMap<string, number>;
  /** By canonical address; these override the zone's weight. */
  readonly addresses: ReadonlyMap<string, number>;
}

export const BALANCE_KEYS = ["source-ip", "source-ip-port"] as const;
type BalanceKey = (typeof BALANCE_KEYS)[number];

/** Permitted numbers of slots of a list. Each slot is one element of the kernel's map per VIP. */
export const SLOT_COUNTS = [256, 1024, 4096, 16_384] as const;

export const MAX_WEIGHT = 1000;

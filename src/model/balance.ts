/** How a service asks its connections to be spread, where it asks for more than chance. */

export interface Balance {
  /** What of a connection decides on its endpoint, on every node alike; "chance": it is drawn. */
  readonly by: BalanceKey | "chance";
  /** Slots of each list; 0: by the number of endpoints. */
  readonly slots: number;
}

export const BALANCE_KEYS = ["source-ip", "source-ip-port"] as const;
export type BalanceKey = (typeof BALANCE_KEYS)[number];

/** Slots that a list may have. Each is an element of the kernel's map, for each VIP. */
export const SLOT_COUNTS = [256, 1024, 4096, 16_384] as const;

import type { Kernel } from "../../nft/kernel/kernel.js";
import type { LegacyTables } from "../../nft/kernel/legacy-tables.js";
import type { NetlinkExchange } from "../../nft/kernel/netlink-message.js";

/** The interfaces of the kernel that show and remove leftovers. */
export interface LeftoverKernel extends Kernel {
  readonly legacy: Pick<LegacyTables, "chains" | "layout">;
  readonly connection: NetlinkExchange;
}

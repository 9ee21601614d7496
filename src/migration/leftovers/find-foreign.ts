/**
 * Finds and reports kube-proxy's leftovers outside nf_tables, in the tables of the older iptables and in IPVS. Removes
 * nothing.
 */
import { findIpvs } from "./find-ipvs.js";
import { findLegacy, type ForeignLeftover, type LegacyReader } from "./find-legacy.js";

export interface ForeignOptions {
  /** Directory that contains /proc. Default "/". */
  readonly root?: string;
  /** Without it, every table that could have kube-proxy's chains is reported. */
  readonly legacy?: LegacyReader;
}

/** Never throws. Treats unreadable files as absent. */
export async function findForeignLeftovers(options: ForeignOptions = {}): Promise<ForeignLeftover[]> {
  const { root = "/" } = options;
  const found = [
    await findLegacy("ip", root, options.legacy),
    await findLegacy("ip6", root, options.legacy),
    await findIpvs(root),
  ];
  return found.flatMap((leftover) => leftover ?? []);
}

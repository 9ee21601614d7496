/** What kube-proxy left where nf_tables does not reach: in the tables of the older iptables, and in IPVS. Found and named, and no more. */
import { findIpvs } from "./ipvs-look.js";
import { findLegacy, type ReadLegacyChains } from "./legacy.js";
import type { ForeignLeftover } from "./foreign-leftover.js";

export type { ReadLegacyChains } from "./legacy.js";

export interface ForeignOptions {
  /** Where /proc is; default "/". */
  readonly root?: string;
  /** Without it, every table that could hold kube-proxy's chains is named. */
  readonly legacyChains?: ReadLegacyChains;
}

/** Never throws: what cannot be read is not there. */
export async function findForeignLeftovers(options: ForeignOptions = {}): Promise<ForeignLeftover[]> {
  const { root = "/" } = options;
  const found = [
    await findLegacy("ip", root, options.legacyChains),
    await findLegacy("ip6", root, options.legacyChains),
    await findIpvs(root),
  ];
  return found.flatMap((leftover) => leftover ?? []);
}

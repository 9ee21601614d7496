/** Counts the services that the kernel still serves from an earlier run, until this run has written its own. */
import type { Kernel } from "../../nft/kernel/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import { ADDRESS_MAPS } from "../../proxier/served-addresses.js";
import { TABLE_NAME } from "../../ruleset/names.js";

/** Returns the number of VIPs and node ports in the family's table, or 0 if there is none. Rejects with KernelError. */
export async function countKernelEntries(
  kernel: Pick<Kernel, "tables" | "sets" | "elements">,
  family: IpFamily,
): Promise<number> {
  const ref = { family, table: TABLE_NAME };
  if (!(await kernel.tables(family)).some(({ table }) => table === TABLE_NAME)) return 0;
  const sets = (await kernel.sets(ref)).filter(({ set }) => ADDRESS_MAPS.has(set));
  let entries = 0;
  // The sets are read one after the other, so that they are not in memory together.
  for (const set of sets) entries += (await kernel.elements(ref, set)).count;
  return entries;
}

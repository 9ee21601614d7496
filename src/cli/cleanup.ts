import { type ReadLegacyChains, type RemoveLegacyChains, removeLeftovers } from "../leftovers/index.js";
import { removeFlowtable } from "../flowtable/flowtable.js";
import { createLogger, type Logger, type LogLevel } from "../base/logger.js";
import { endHandover } from "../handover/removal.js";
import { TABLE_NAME } from "../ruleset/names.js";
import { Table } from "../table/index.js";
import { openKernel } from "./open-kernel.js";
import { MONOTONIC_CLOCK } from "./setup.js";

const FAMILIES = ["ip", "ip6"] as const;

/** `cleanup`: see `cleanupTables`. */
export async function cleanupCommand(options: { readonly logLevel: LogLevel }): Promise<number> {
  return cleanupTables(await createLogger(options.logLevel));
}

/**
 * Removes the tables of both families with the copies of them that `handover` left, the flowtable, and what kube-proxy's other modes left in the
 * tables of iptables-nft, of the older iptables and in IPVS, but for virtual servers in `excludeCIDRs`; fine when there is nothing. Connections
 * that IPVS has open are cut. Exit code 1 when something stays: what the kernel refused, what another process uses, or rules of
 * kube-proxy's that only other tools can remove; the log names it and says what to do.
 */
export async function cleanupTables(log: Logger, excludeCIDRs: readonly string[] = []): Promise<number> {
  const kernel = await openKernel();
  const legacyChains: ReadLegacyChains = (family, table) => kernel.legacyChains(family, table);
  const removeLegacyChains: RemoveLegacyChains = (family, table, own, lockFile) =>
    kernel.removeLegacyChains(family, table, own, lockFile);
  let code = 0;
  try {
    for (const family of FAMILIES) {
      const table = new Table(kernel, { family, name: TABLE_NAME, clock: MONOTONIC_CLOCK });
      try {
        const { transactions } = await table.destroy();
        log.info({ family, table: TABLE_NAME }, transactions === 0 ? "no table to remove" : "table removed");
      } catch (error) {
        log.error({ family, table: TABLE_NAME, err: error }, "the table could not be removed");
        code = 1;
      } finally {
        table.close();
      }
    }
    if (!(await endHandover({ kernel, log }, FAMILIES))) code = 1;
    if (!(await removeFlowtable(kernel, log))) code = 1;
    const options = {
      kernel,
      log,
      families: FAMILIES,
      legacyChains,
      removeLegacyChains,
      netlink: kernel,
      excludeCIDRs,
    };
    return (await removeLeftovers(options)) ? code : 1;
  } finally {
    await kernel.close();
  }
}

import { NftKernel } from "../../nft/kernel/nft-kernel.js";
import { setTimeout as sleep } from "node:timers/promises";

import { IP_FAMILIES } from "../../base/ip-families.js";
import { removeLeftovers } from "../../migration/leftovers/leftover-removal.js";
import { removeFlowtable } from "../../flowtable/flowtable.js";
import { createLogger, type Logger, type LogLevel } from "../../base/logger.js";
import { endHandover } from "../../migration/handover/handover-removal.js";
import type { Kernel } from "../../nft/kernel/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import { TABLE_NAME } from "../../ruleset/names.js";
import { Table } from "../../nft/engine-exports.js";
import { MONOTONIC_CLOCK } from "../setup.js";

/** A daemon that still runs creates its table again within this time, ms, unless the machine is very busy. */
const RETURN_MS = 1000;
const CHECK_MS = 100;

/** `cleanup`: see `cleanupTables`. */
export async function cleanupCommand(options: { readonly logLevel: LogLevel }): Promise<number> {
  return cleanupTables(await createLogger(options.logLevel));
}

/**
 * Removes the tables of both families, their copies from `handover`, and the flowtable. Also removes the remains of kube-proxy's other modes in
 * iptables-nft, the older iptables and IPVS, except virtual servers in `excludeCIDRs`. Succeeds if there is nothing. Open IPVS connections
 * are cut. Exit code 1 if anything stays, because the kernel rejects its removal, another process uses it, only other tools can remove it, or
 * a running daemon writes its table again. The log then names it and says what to do.
 */
export async function cleanupTables(log: Logger, excludeCIDRs: readonly string[] = []): Promise<number> {
  const kernel = await NftKernel.open();
  let code = 0;
  const removed: IpFamily[] = [];
  try {
    for (const family of IP_FAMILIES) {
      const table = new Table(kernel, { family, name: TABLE_NAME, clock: MONOTONIC_CLOCK });
      try {
        const { transactions } = await table.destroy();
        if (transactions > 0) removed.push(family);
        log.info({ family, table: TABLE_NAME }, transactions === 0 ? "no table to remove" : "table removed");
      } catch (error) {
        log.error({ family, table: TABLE_NAME, err: error }, "the table could not be removed");
        code = 1;
      } finally {
        table.close();
      }
    }
    if (!(await endHandover({ kernel, log }, IP_FAMILIES))) code = 1;
    if (!(await removeFlowtable(kernel, log))) code = 1;
    if (!(await removeLeftovers({ kernel, log, families: IP_FAMILIES, excludeCIDRs }))) code = 1;
    for (const family of await returned(kernel, removed)) {
      const hint = "end nft-proxier or kube-proxy on this node, then run cleanup again";
      log.error({ family, table: TABLE_NAME, hint }, "the table is back: a running program wrote it again");
      code = 1;
    }
    return code;
  } finally {
    await kernel.close();
  }
}

/** Returns the families whose table exists again. */
async function returned(kernel: Pick<Kernel, "tables">, removed: readonly IpFamily[]): Promise<IpFamily[]> {
  const isThere = async (family: IpFamily): Promise<boolean> =>
    (await kernel.tables(family)).some(({ table }) => table === TABLE_NAME);
  for (let waitedMs = 0; removed.length > 0 && waitedMs < RETURN_MS; waitedMs += CHECK_MS) {
    await sleep(CHECK_MS);
    const there = await Promise.all(removed.map(isThere));
    if (there.every(Boolean)) return [...removed];
  }
  const there = await Promise.all(removed.map(isThere));
  return removed.filter((_, index) => there[index]);
}

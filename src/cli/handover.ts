/** `handover`: leaves a copy of what is in force (src/handover/), or removes it. */
import { createLogger } from "../base/logger.js";
import { CopyReplaced, handOver, removeHandover } from "../handover/handover.js";
import { KernelError } from "../kernel/errors.js";
import { HANDOVER_TABLE, TABLE_NAME } from "../ruleset/names.js";
import { openKernel } from "./open-kernel.js";
import type { HandoverOptions } from "./options.js";
import { UserError } from "./stdio.js";

const FAMILIES = ["ip", "ip6"] as const;

/** Exit code 0. Rejects with a UserError where there is nothing to hand over, or the kernel refuses. */
export async function handoverCommand(options: HandoverOptions): Promise<number> {
  const log = await createLogger(options.logLevel);
  const kernel = await openKernel();
  try {
    if (options.remove === true) {
      const removed = await removeHandover(kernel, FAMILIES);
      if (removed.length === 0) log.info({ table: HANDOVER_TABLE }, "no handover copy to remove");
      for (const family of removed) log.info({ family, table: HANDOVER_TABLE }, "handover copy removed");
      return 0;
    }
    const done = await handOver({ kernel, families: FAMILIES, forMs: options.for });
    if (done.length === 0) {
      throw new UserError(
        `nothing to hand over: no table ${TABLE_NAME} of nft-proxier's is in force on this node; start the daemon, or run it where that runs`,
      );
    }
    for (const { family, until, ...counts } of done) {
      log.info(
        { family, ...counts, until: new Date(until).toISOString() },
        "copy in force; it follows no change of services",
      );
    }
    return 0;
  } catch (error) {
    if (error instanceof CopyReplaced) {
      throw new UserError(
        `${error.message}: by another handover, or by a start; see \`nft-proxier status\`, and run it again where no copy serves`,
        { cause: error },
      );
    }
    if (!(error instanceof KernelError)) throw error;
    throw new UserError(`${error.message}; what is in force stays, see \`nft list tables\` for copies`, {
      cause: error,
    });
  } finally {
    await kernel.close();
  }
}

/** `handover`: leaves a copy of the active rules (src/migration/handover/), or removes it. */
import { NftKernel } from "../../nft/kernel/nft-kernel.js";
import { IP_FAMILIES } from "../../base/ip-families.js";
import { createLogger } from "../../base/logger.js";
import { CopyReplaced, type HandoverFailure, handOver, removeHandover } from "../../migration/handover/handover.js";
import { KernelError } from "../../nft/kernel/errors.js";
import { HANDOVER_TABLE, TABLE_NAME } from "../../ruleset/names.js";
import type { HandoverOptions } from "./kernel-commands.js";
import { UserError } from "../stdio.js";

/** Exit code 0 if each family with rules of ours has an active copy. Otherwise rejects with UserError. */
export async function handoverCommand(options: HandoverOptions): Promise<number> {
  const log = await createLogger(options.logLevel);
  const kernel = await NftKernel.open();
  try {
    if (options.remove === true) {
      const { removed, failures } = await removeHandover(kernel, IP_FAMILIES);
      for (const family of removed) log.info({ family, table: HANDOVER_TABLE }, "handover copy removed");
      failIf(failures);
      if (removed.length === 0) log.info({ table: HANDOVER_TABLE }, "no handover copy to remove");
      return 0;
    }
    const { copies, failures } = await handOver({ kernel, families: IP_FAMILIES, forMs: options.for });
    for (const { family, until, ...counts } of copies) {
      log.info(
        { family, ...counts, until: new Date(until).toISOString() },
        "copy active; it does not follow changes of services",
      );
    }
    failIf(failures);
    if (copies.length === 0) {
      throw new UserError(
        `nothing to hand over, because nft-proxier has no active table ${TABLE_NAME} on this node; start the daemon, or run this command where it runs`,
      );
    }
    return 0;
  } finally {
    await kernel.close();
  }
}

/** Throws the failures of all families as one. */
function failIf(failures: readonly HandoverFailure[]): void {
  if (failures.length === 0) return;
  const texts = failures.map(({ family, error }) => `${family}: ${failureText(error)}`);
  throw new UserError(texts.join("\n"), { cause: failures[0].error });
}

/** Rethrows errors that come neither from the kernel nor from another program's change. */
function failureText(error: unknown): string {
  if (error instanceof CopyReplaced) {
    return `${error.message}, such as another handover, cleanup, or an older version at its start; check \`nft-proxier status\`, and run handover again if no copy serves`;
  }
  if (!(error instanceof KernelError)) throw error;
  return `${error.message}; the active rules stay; \`nft list tables\` shows whether copies are left`;
}

/** The end of a copy that a run before left: as soon as this program's own rules are in force. */
import type { Logger } from "../base/logger.js";
import type { Kernel } from "../kernel/types.js";
import type { IpFamily } from "../model/types.js";
import type { ProxierObserver, SyncReport } from "../proxier/observer.js";
import { HANDOVER_TABLE } from "../ruleset/names.js";
import { removeHandover } from "./handover.js";

export interface RemovalOptions {
  readonly kernel: Kernel;
  readonly log: Logger;
}

/** Removes each family's copy once, when its rules are in force for the first time. */
export class HandoverRemoval implements ProxierObserver {
  readonly #options: RemovalOptions;
  readonly #seen = new Set<IpFamily>();
  #work: Promise<void> = Promise.resolve();

  constructor(options: RemovalOptions) {
    this.#options = options;
  }

  synced({ family, ok }: Pick<SyncReport, "family" | "ok">): void {
    if (!ok || this.#seen.has(family)) return;
    this.#seen.add(family);
    this.#work = this.#remove(family, this.#work);
  }

  /** Resolves when what is under way is done; before the kernel is closed. */
  async done(): Promise<void> {
    await this.#work;
  }

  async #remove(family: IpFamily, before: Promise<void>): Promise<void> {
    await before;
    await endHandover(this.#options, [family]);
  }
}

/**
 * Removes the copies, and logs that. False: one could not be removed; it serves what nothing else does, and no longer than its time limit.
 * Never rejects.
 */
export async function endHandover({ kernel, log }: RemovalOptions, families: readonly IpFamily[]): Promise<boolean> {
  try {
    for (const family of await removeHandover(kernel, families)) {
      log.info({ family, table: HANDOVER_TABLE }, "handover copy removed");
    }
    return true;
  } catch (error) {
    const hint = "nft-proxier handover --remove";
    log.warn({ families, table: HANDOVER_TABLE, err: error, hint }, "removing the handover copy failed");
    return false;
  }
}

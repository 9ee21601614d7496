/** Removes the copy that an earlier run left, as soon as this program's own rules are active. */
import type { Logger } from "../../base/logger.js";
import type { Kernel } from "../../nft/kernel/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import type { ProxierObserver, SyncReport } from "../../proxier/observer.js";
import { HANDOVER_TABLE } from "../../ruleset/names.js";
import { type HandoverFailure, removeFormerHandover, removeHandover } from "./handover.js";

interface RemovalOptions {
  readonly kernel: Kernel;
  readonly log: Logger;
}

/** Removes each family's copy once, when its rules become active for the first time. */
export class HandoverRemoval implements ProxierObserver {
  readonly #seen = new Set<IpFamily>();
  #work: Promise<void> = Promise.resolve();

  constructor(private readonly options: RemovalOptions) {}

  synced({ family, ok }: Pick<SyncReport, "family" | "ok">): void {
    if (!ok || this.#seen.has(family)) return;
    this.#seen.add(family);
    this.#work = this.#remove(family, this.#work);
  }

  /** Resolves when the current work is complete. Call it before closing the kernel. */
  async done(): Promise<void> {
    await this.#work;
  }

  async #remove(family: IpFamily, before: Promise<void>): Promise<void> {
    await before;
    await endFormerHandover(this.options, family);
  }
}

/** Removes the family's copy if it was active before this process started, and logs that. Never rejects. */
export async function endFormerHandover(options: RemovalOptions, family: IpFamily): Promise<void> {
  const { kernel, log } = options;
  try {
    const what = await removeFormerHandover(kernel, family, () => process.uptime() * 1000);
    if (what === "removed") logRemoved(log, family);
    if (what === "newer") log.info({ family, table: HANDOVER_TABLE }, "handover copy is newer than this start; kept");
  } catch (error) {
    logFailure(log, { family, error });
  }
}

/** Removes the copies, and logs that. Returns false if one could not be removed. Never rejects. */
export async function endHandover({ kernel, log }: RemovalOptions, families: readonly IpFamily[]): Promise<boolean> {
  const { removed, failures } = await removeHandover(kernel, families);
  for (const family of removed) logRemoved(log, family);
  for (const failure of failures) logFailure(log, failure);
  return failures.length === 0;
}

function logRemoved(log: Logger, family: IpFamily): void {
  log.info({ family, table: HANDOVER_TABLE }, "handover copy removed");
}

/**
 * A failure is harmless: the copy only serves connections that nothing else translates, and only until its time limit.
 */
function logFailure(log: Logger, { family, error }: HandoverFailure): void {
  const hint = "run nft-proxier handover --remove";
  log.warn({ family, table: HANDOVER_TABLE, err: error, hint }, "removing the handover copy failed");
}

/** What kube-proxy's other modes left on the node: removed where nf_tables reaches, else named. */
import type { Kernel } from "../kernel/types.js";
import type { IpFamily } from "../model/types.js";
import type { Logger } from "../base/logger.js";
import type { ProxierObserver, SyncReport } from "../proxier/observer.js";
import { findForeignLeftovers, type ForeignLeftover, type ForeignOptions } from "./foreign.js";
import { removeIptablesChains } from "./iptables.js";

export { type ForeignOptions, type ReadLegacyChains } from "./foreign.js";

export interface LeftoverOptions extends ForeignOptions {
  readonly kernel: Kernel;
  readonly log: Logger;
  readonly families: readonly IpFamily[];
}

/**
 * Removes what kube-proxy's other modes left in the tables of iptables-nft, and logs what is left there and elsewhere.
 * To be called when our own rules are in force: until then kube-proxy's serve. True when nothing of kube-proxy's is
 * left. Never throws.
 */
export async function removeLeftovers(options: LeftoverOptions): Promise<boolean> {
  const removed = await removeFromNft(options);
  return (await reportForeign(options)) && removed;
}

/**
 * Does the same while the proxier runs: for each family once, when its rules are in force for the first time, so that a family
 * whose table the kernel refuses keeps what serves it.
 */
export class LeftoverRemoval implements ProxierObserver {
  readonly #options: LeftoverOptions;
  readonly #seen = new Set<IpFamily>();
  #work: Promise<void> = Promise.resolve();

  constructor(options: LeftoverOptions) {
    this.#options = options;
  }

  synced({ family, ok }: Pick<SyncReport, "family" | "ok">): void {
    if (!ok || this.#seen.has(family)) return;
    const first = this.#seen.size === 0;
    this.#seen.add(family);
    this.#work = this.#clean(family, first, this.#work);
  }

  /** Resolves when what is under way is done; before the kernel is closed. */
  async done(): Promise<void> {
    await this.#work;
  }

  async #clean(family: IpFamily, first: boolean, before: Promise<void>): Promise<void> {
    await before;
    await removeFromNft({ ...this.#options, families: [family] });
    if (first) await reportForeign(this.#options);
  }
}

async function reportForeign(options: LeftoverOptions): Promise<boolean> {
  const foreign = await findForeignLeftovers(options);
  for (const leftover of foreign) report(options.log, leftover);
  return foreign.length === 0;
}

async function removeFromNft({ kernel, log, families }: LeftoverOptions): Promise<boolean> {
  try {
    const cleanups = await removeIptablesChains(kernel, families);
    for (const { family, table, chains, jumps, kept } of cleanups) {
      if (chains + jumps > 0)
        log.info({ family, table, chains, jumps }, "leftovers of kube-proxy's other modes removed");
      for (const { chain, user } of kept) {
        log.warn(
          { family, table, chain, user, hint: "remove the user's rule, then run cleanup" },
          "leftover chain kept; used by another program's rule",
        );
      }
    }
    return cleanups.every(({ kept }) => kept.length === 0);
  } catch (error) {
    log.warn({ err: error, hint: "run cleanup" }, "removing leftovers of kube-proxy's other modes failed");
    return false;
  }
}

function report(log: Logger, { kind, seen, command }: ForeignLeftover): void {
  const hint = "its rules may still take packets: run the command on this node, if no other program uses them";
  log.warn({ leftover: kind, seen, command, hint }, "leftover of kube-proxy found");
}

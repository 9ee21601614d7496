/**
 * Removes kube-proxy's chains from the tables of the older iptables: the kernel's interface of iptables-legacy itself, one replacement for
 * each table. The other programs that write there keep each other off with a lock on a file; it is taken as they take it.
 */
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Backoff } from "../../base/backoff.js";
import type { Logger } from "../../base/logger.js";
import { KernelError } from "../../netlink/errors.js";
import type { LegacyChainNames, LegacyRemoval } from "../../netlink/legacy-tables.js";
import type { IpFamily } from "../../base/ip.js";
import { findLegacy, presentTables, type ReadLegacyChains } from "./legacy.js";
import { type IptablesTable, ownChains } from "./names.js";
import { reportForeign, reportRemoval } from "./removal-report.js";

/** As `NftKernel.removeLegacyChains`. */
export type RemoveLegacyChains = (
  family: IpFamily,
  table: string,
  own: LegacyChainNames,
  lockFile: string,
) => Promise<LegacyRemoval>;

export interface LegacyOptions {
  readonly log: Logger;
  /** Where /proc and /run are; default "/". */
  readonly root?: string;
  readonly legacyChains?: ReadLegacyChains;
  /** Without it, what is found is named and stays. */
  readonly removeLegacyChains?: RemoveLegacyChains;
  /** How long to try while another process has the lock or changes the table, ms. */
  readonly patienceMs: number;
  /** Ends the waits: what is left then stays, and nothing is said of it. */
  readonly signal?: AbortSignal;
}

/** The lock file of iptables-legacy, and the variable that names another one. */
const LOCK_FILE = "run/xtables.lock";
const LOCK_VARIABLE = "XTABLES_LOCKFILE";

const WAITS = { firstMs: 100, longestMs: 60_000 } as const;
/** From this wait on it is worth a line. */
const NOTED_MS = 3000;

/** Removes what there is in one family's tables, and logs that, and what stays. True when nothing of kube-proxy's is left. Never throws. */
export async function removeLegacy(family: IpFamily, options: LegacyOptions): Promise<boolean> {
  const root = options.root ?? "/";
  let clean = true;
  for (const table of await presentTables(family, root)) {
    clean = (await new TableRemoval(family, table, root, options).run()) && clean;
  }
  return clean;
}

class TableRemoval {
  readonly #family: IpFamily;
  readonly #table: IptablesTable;
  readonly #root: string;
  readonly #options: LegacyOptions;

  constructor(family: IpFamily, table: IptablesTable, root: string, options: LegacyOptions) {
    this.#family = family;
    this.#table = table;
    this.#root = root;
    this.#options = options;
  }

  /** True when nothing of kube-proxy's is left. */
  async run(): Promise<boolean> {
    const { removeLegacyChains, signal } = this.#options;
    if (removeLegacyChains === undefined) return this.#name();
    const lockFile = process.env[LOCK_VARIABLE] ?? join(this.#root, LOCK_FILE);
    try {
      return this.#report(
        await this.#patiently(async () =>
          removeLegacyChains(this.#family, this.#table, ownChains(this.#table), lockFile),
        ),
      );
    } catch (error) {
      return signal?.aborted === true ? false : this.#name(error);
    }
  }

  /** Again and again, while another process is what keeps it from being done. */
  async #patiently(remove: () => Promise<LegacyRemoval>): Promise<LegacyRemoval> {
    const { log, patienceMs, signal } = this.#options;
    const backoff = new Backoff(WAITS);
    for (let waitedMs = 0; ;) {
      try {
        return await remove();
      } catch (error) {
        const waitMs = backoff.next();
        if (!(error instanceof KernelError) || error.errno !== "EAGAIN" || waitedMs + waitMs > patienceMs) throw error;
        if (waitMs >= NOTED_MS) {
          const fields = { leftover: "iptables-legacy", family: this.#family, table: this.#table, err: error };
          log.info({ ...fields, retryMs: waitMs }, "removing leftovers of kube-proxy's other modes failed; retrying");
        }
        await sleep(waitMs, undefined, { signal });
        waitedMs += waitMs;
      }
    }
  }

  #report(removal: LegacyRemoval): boolean {
    const where = { leftover: "iptables-legacy", family: this.#family, table: this.#table } as const;
    const { unlocked, countersKept } = removal;
    const { log } = this.#options;
    reportRemoval(log, { ...where, unlocked }, removal);
    if (!countersKept) log.warn(where, "counters of iptables rules begin at 0; changed by another process");
    return removal.kept.length === 0;
  }

  /** Says what is there, if anything is, and which command removes it. */
  async #name(error?: unknown): Promise<boolean> {
    const leftover = await findLegacy(this.#family, this.#root, this.#options.legacyChains, [this.#table]);
    if (leftover !== undefined) reportForeign(this.#options.log, leftover, error);
    return leftover === undefined;
  }
}

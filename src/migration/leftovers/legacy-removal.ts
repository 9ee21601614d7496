/**
 * Removes kube-proxy's chains from the tables of the older iptables through the kernel interface of iptables-legacy,
 * with one replacement per table. Other programs that write these tables exclude each other with a file lock, and
 * so does this code.
 */
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Backoff } from "../../base/backoff.js";
import type { Logger } from "../../base/logger.js";
import { KernelError } from "../../netlink/errors.js";
import type { LegacyRemoval, LegacyTables } from "../../netlink/legacy-tables.js";
import type { IpFamily } from "../../base/ip.js";
import { findLegacy, presentTables } from "./find-legacy.js";
import { type IptablesTable, ownChains } from "./iptables-names.js";
import { reportForeign, reportRemoval } from "./removal-report.js";

interface LegacyOptions {
  readonly log: Logger;
  /** Directory that contains /proc and /run. Default "/". */
  readonly root?: string;
  /** Without `remove`, leftovers are reported and stay. */
  readonly legacy?: Partial<Pick<LegacyTables, "chains" | "remove">>;
  /** How long to retry while another process has the lock or changes the table, ms. */
  readonly patienceMs: number;
  /** Aborts the waits. Leftovers then stay and are not reported. */
  readonly signal?: AbortSignal;
}

/** The lock file of iptables-legacy, and the environment variable that overrides it. */
const LOCK_FILE = "run/xtables.lock";
const LOCK_VARIABLE = "XTABLES_LOCKFILE";

const WAITS = { firstMs: 100, longestMs: 60_000 } as const;
/** Waits of at least this length are logged. */
const NOTED_MS = 3000;

/**
 * Removes the leftovers in one family's tables, and logs the removed and the remaining chains. Returns true if nothing of
 * kube-proxy is left. Never throws.
 */
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

  /** Returns true if nothing of kube-proxy is left. */
  async run(): Promise<boolean> {
    const { legacy, signal } = this.#options;
    if (legacy?.remove === undefined) return this.#name();
    const remove = legacy.remove.bind(legacy);
    const lockFile = process.env[LOCK_VARIABLE] ?? join(this.#root, LOCK_FILE);
    try {
      return this.#report(
        await this.#patiently(async () => remove(this.#family, this.#table, ownChains(this.#table), lockFile)),
      );
    } catch (error) {
      return signal?.aborted === true ? false : this.#name(error);
    }
  }

  /** Retries while another process prevents the removal. */
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
    if (!countersKept) log.warn(where, "counters of iptables rules start from 0; another process changed the table");
    return removal.kept.length === 0;
  }

  /** Reports leftovers, if there are any, with the command that removes them. */
  async #name(error?: unknown): Promise<boolean> {
    const leftover = await findLegacy(this.#family, this.#root, this.#options.legacy, [this.#table]);
    if (leftover !== undefined) reportForeign(this.#options.log, leftover, error);
    return leftover === undefined;
  }
}

/** Watches the kernel's tables through events, and through a periodic check for changes that events do not show. */
import { BoundedFrequencyRunner, type WriteOutcome } from "../base/bounded-frequency-runner.js";
import type { Kernel } from "../nft/kernel/kernel.js";
import type { Logger } from "../base/logger.js";
import { TableWatch } from "../nft/engine-exports.js";
import type { FamilyProxier } from "./family-proxier.js";

/** Minimum interval between checks, ms. It is longer if a check takes long, up to an hour. */
const CHECK_INTERVAL_MS = 300_000;
const LONGEST_CHECK_INTERVAL_MS = 3_600_000;
/**
 * Number of elements of a table that one check compares in turn, if the kernel reports the number of the others. This
 * covers all of 10,000 services with 10 endpoints, or 50,000 in five checks. It takes 0.15 to 0.25 s, mostly in the
 * kernel, on any free core.
 */
export const CHECKED_ELEMENTS = 131_072;
/** Maximum share of time for checks. This is mostly the kernel's dumps, on one core. */
const CHECK_SHARE = 0.002;

/** Returns the time until the next check, ms, after one that took `tookMs`. */
export function checkPause(tookMs: number): number {
  return Math.max(CHECK_INTERVAL_MS, Math.min(tookMs / CHECK_SHARE, LONGEST_CHECK_INTERVAL_MS));
}

export class Watcher {
  readonly #watch: TableWatch;
  readonly #checks: BoundedFrequencyRunner;
  #closed = false;

  /**
   * @param request requests a write after this many ms.
   * @param onLost called when events were lost.
   */
  constructor(
    kernel: Kernel,
    private readonly families: readonly FamilyProxier[],
    private readonly log: Logger,
    private readonly request: (inMs: number) => void,
    onLost: (reason: string) => void,
  ) {
    const limits = { gapMs: 0, maxRetryMs: LONGEST_CHECK_INTERVAL_MS };
    this.#checks = new BoundedFrequencyRunner(() => this.#checkInTurn(), limits);
    this.#watch = new TableWatch(
      kernel,
      families.map(({ table }) => table),
      {
        changed: (table, change) => {
          const family = families.find((candidate) => candidate.table === table);
          if (family === undefined) return;
          family.repair.notice(change);
          if (change.ofTable) family.owner.check();
          // The owner's writes are no reason to retry.
          if (!family.owner.held) this.request(family.repair.waitMs());
        },
        lost: (reason) => {
          this.log.warn({ reason }, "events lost; resyncing");
          onLost(reason);
          this.request(Math.min(...families.map(({ repair }) => repair.waitMs())));
        },
        failed: (error, retryMs) => this.log.error({ err: error, retryMs }, "watching the tables failed; retrying"),
      },
    );
  }

  /** Call it before the tables are read: changes are noticed from then on. */
  async open(): Promise<void> {
    await this.#watch.open();
    this.#checks.requestIn(CHECK_INTERVAL_MS);
  }

  /** If the tables have been closed, a running check ends after its current part. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#watch.close();
    await this.#checks.stop();
  }

  async #checkInTurn(): Promise<WriteOutcome> {
    const began = performance.now();
    await this.check();
    return { ok: true, againMs: checkPause(performance.now() - began) };
  }

  /**
   * Compares all tables with the kernel, and requests a write if one differs from what we last wrote. Compares
   * one part of a large table at a time. Never throws.
   */
  async check(): Promise<void> {
    for (const { family, table, repair } of this.families) {
      try {
        const began = performance.now();
        const outcome = await table.check(CHECKED_ELEMENTS);
        this.log.debug({ family, outcome, ms: performance.now() - began }, "table checked");
        if (outcome !== "different") continue;
        repair.drifted();
        this.request(repair.waitMs());
      } catch (error) {
        if (this.#closed) return;
        this.log.warn({ family, err: error }, "checking the table failed");
      }
    }
  }
}

/** Keeps an eye on the kernel's tables: events, and a check now and then for what events do not show. */
import { performance } from "node:perf_hooks";

import type { Kernel } from "../netlink/kernel.js";
import type { Logger } from "../base/logger.js";
import { TableWatch, type WatchOptions } from "../table/table-exports.js";
import type { FamilyProxier } from "./family.js";

export interface WatcherOptions extends WatchOptions {
  /** Between two checks, ms: at least. Default: five minutes. Longer where a check takes long, up to an hour. */
  readonly checkIntervalMs?: number;
}

const CHECK_INTERVAL_MS = 300_000;
const LONGEST_CHECK_INTERVAL_MS = 3_600_000;
/**
 * Elements of a table that one check compares, in turns, where the kernel says how many there are of the others: all of 10,000 services of 10
 * endpoints; of 50,000 in five checks. 0.15 to 0.25 s, most of it the kernel's, on whichever core is free.
 */
export const CHECKED_ELEMENTS = 131_072;
/** Of the time, that checks may take: mostly the kernel's dumps, on one core. */
const CHECK_SHARE = 0.002;

/** Ms from a check that took so long to the next. */
export function checkPause(tookMs: number, intervalMs = CHECK_INTERVAL_MS): number {
  return Math.max(intervalMs, Math.min(tookMs / CHECK_SHARE, LONGEST_CHECK_INTERVAL_MS));
}

export class Watcher {
  readonly #families: readonly FamilyProxier[];
  readonly #log: Logger;
  readonly #request: (inMs: number) => void;
  readonly #checkIntervalMs: number;
  readonly #watch: TableWatch;
  #timer: NodeJS.Timeout | undefined;
  #checking: Promise<void> | undefined;
  #closed = false;

  /**
   * @param request asks for a write, in so many ms.
   * @param onLost told when events were lost.
   */
  constructor(
    kernel: Kernel,
    families: readonly FamilyProxier[],
    log: Logger,
    request: (inMs: number) => void,
    onLost: (reason: string) => void,
    options: WatcherOptions = {},
  ) {
    this.#families = families;
    this.#log = log;
    this.#request = request;
    this.#checkIntervalMs = options.checkIntervalMs ?? CHECK_INTERVAL_MS;
    this.#watch = new TableWatch(
      kernel,
      families.map(({ table }) => table),
      {
        changed: (table, change) => {
          const family = families.find((candidate) => candidate.table === table);
          if (family === undefined) return;
          family.repair.notice(change);
          if (change.ofTable) family.owner.look();
          // What the owner writes is no reason to try.
          if (!family.owner.held) this.#request(family.repair.waitMs());
        },
        lost: (reason) => {
          this.#log.warn({ reason }, "events lost; resyncing");
          onLost(reason);
          this.#request(Math.min(...families.map(({ repair }) => repair.waitMs())));
        },
        failed: (error, retryMs) => this.#log.error({ err: error, retryMs }, "watching the tables failed; retrying"),
      },
      options,
    );
  }

  /** To be called before the tables are read: what changes from then on is noticed. */
  async open(): Promise<void> {
    await this.#watch.open();
    this.#checkIn(this.#checkIntervalMs);
  }

  /** Where a check is under way it ends with the part that it is at, if the tables have been closed. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#watch.close();
    await this.#checking;
  }

  #checkIn(ms: number): void {
    this.#timer = setTimeout(() => {
      this.#checking = this.#checkAndGoOn();
    }, ms);
    this.#timer.unref();
  }

  async #checkAndGoOn(): Promise<void> {
    const began = performance.now();
    await this.check();
    if (!this.#closed) this.#checkIn(checkPause(performance.now() - began, this.#checkIntervalMs));
  }

  /** Compares all tables with the kernel, of large ones a part in turns; asks for a write if one is not as it was left. Never throws. */
  async check(): Promise<void> {
    for (const { family, table, repair } of this.#families) {
      try {
        const began = performance.now();
        const outcome = await table.check(CHECKED_ELEMENTS);
        this.#log.debug({ family, outcome, ms: performance.now() - began }, "table checked");
        if (outcome !== "different") continue;
        repair.drifted();
        this.#request(repair.waitMs());
      } catch (error) {
        if (this.#closed) return;
        this.#log.warn({ family, err: error }, "checking the table failed");
      }
    }
  }
}

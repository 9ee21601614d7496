/** Keeps an eye on the kernel's tables: events, and a full check now and then for what events do not show. */
import type { Kernel } from "../kernel/types.js";
import type { Logger } from "../observe/log.js";
import { TableWatch, type WatchOptions } from "../table/watch.js";
import type { FamilyProxier } from "./family.js";

export interface WatcherOptions extends WatchOptions {
  /** Between two full checks, ms. Default: one hour. */
  readonly checkIntervalMs?: number;
}

const CHECK_INTERVAL_MS = 3_600_000;

export class Watcher {
  readonly #families: readonly FamilyProxier[];
  readonly #log: Logger;
  readonly #request: (inMs: number) => void;
  readonly #checkIntervalMs: number;
  readonly #watch: TableWatch;
  #timer: NodeJS.Timeout | undefined;
  #checking: Promise<void> | undefined;

  /** @param request asks for a write, in so many ms. */
  constructor(
    kernel: Kernel,
    families: readonly FamilyProxier[],
    log: Logger,
    request: (inMs: number) => void,
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
          this.#log.warn({ reason }, "changes of the kernel's tables were not heard; reading them again");
          this.#request(Math.min(...families.map(({ repair }) => repair.waitMs())));
        },
        failed: (error, againMs) =>
          this.#log.error({ err: error, againMs }, "nobody hears of changes of the kernel's tables; trying again"),
      },
      options,
    );
  }

  /** To be called before the tables are read: what changes from then on is noticed. */
  async open(): Promise<void> {
    await this.#watch.open();
    this.#timer = setInterval(() => {
      this.#checking ??= this.check().finally(() => (this.#checking = undefined));
    }, this.#checkIntervalMs);
    this.#timer.unref();
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#watch.close();
    await this.#checking;
  }

  /** Compares all tables with the kernel; asks for a write if one is not as it was left. Never throws. */
  async check(): Promise<void> {
    for (const { family, table, repair } of this.#families) {
      try {
        const outcome = await table.check();
        this.#log.debug({ family, outcome }, "checked the kernel's table");
        if (outcome !== "different") continue;
        repair.drifted();
        this.#request(repair.waitMs());
      } catch (error) {
        this.#log.warn({ family, err: error }, "the kernel's table could not be checked");
      }
    }
  }
}

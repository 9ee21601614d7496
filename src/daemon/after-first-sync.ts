import type { IpFamily } from "../model/types.js";
import type { ProxierObserver, SyncReport } from "../proxier/observer.js";

/** Does something once every family's rules are in force for the first time: until then what was there before serves. */
export class AfterFirstSync implements ProxierObserver {
  readonly #waiting: Set<IpFamily>;
  readonly #work: () => Promise<void>;
  #running: Promise<void> | undefined;

  /** `work` must not reject. */
  constructor(families: readonly IpFamily[], work: () => Promise<void>) {
    this.#waiting = new Set(families);
    this.#work = work;
  }

  synced({ family, ok }: SyncReport): void {
    if (!ok || this.#running !== undefined) return;
    this.#waiting.delete(family);
    if (this.#waiting.size === 0) this.#running = this.#work();
  }

  /** Resolves when the work, if it was begun, is done. */
  async done(): Promise<void> {
    await this.#running;
  }
}

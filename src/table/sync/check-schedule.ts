import type { Clock } from "../rules/types.js";

/** Without a refresh interval the checks after a write end when they would be further apart than this. */
const LONGEST_CHECK_MS = 60_000;

/**
 * When to read the kernel although nothing was asked for: some time after a write (another process that restores an older
 * state does so right behind us), at doubling distances, then at the refresh interval.
 */
export class CheckSchedule {
  /** Of the clock. Undefined: no check is due. */
  next: number | undefined;
  #delay = 0;

  constructor(
    readonly clock: Clock,
    readonly postWriteMs: number,
    readonly refreshMs: number,
  ) {}

  /** Why a check is due, if it is. */
  due(): string | undefined {
    if (this.next === undefined || this.clock.now() < this.next) return undefined;
    return this.#delay > 0 ? "check after a write" : "refresh interval";
  }

  /** An apply() is through. */
  done(wrote: boolean, checked: boolean): void {
    const { postWriteMs, refreshMs } = this;
    const afterWrite = wrote && postWriteMs > 0;
    if (!afterWrite && !checked && this.next !== undefined) return;
    const delay = afterWrite ? postWriteMs : this.#delay * 2;
    const checksEnd = delay === 0 || (refreshMs > 0 ? delay >= refreshMs : delay > LONGEST_CHECK_MS);
    this.#delay = checksEnd ? 0 : delay;
    const waitMs = checksEnd ? refreshMs : delay;
    this.next = waitMs > 0 ? this.clock.now() + waitMs : undefined;
  }
}

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
    if (wrote && this.postWriteMs > 0) this.#schedule(this.postWriteMs);
    else if (checked || this.next === undefined) this.#schedule(this.#delay * 2);
  }

  #schedule(delay: number): void {
    const now = this.clock.now();
    const checksEnd = delay === 0 || (this.refreshMs > 0 ? delay >= this.refreshMs : delay > LONGEST_CHECK_MS);
    this.#delay = checksEnd ? 0 : delay;
    if (!checksEnd) this.next = now + delay;
    else this.next = this.refreshMs > 0 ? now + this.refreshMs : undefined;
  }
}

/**
 * Notes which of the namespace's transactions events have reported, and which of them changed the table. A read is as good as undisturbed if all
 * transactions meanwhile changed other tables.
 *
 * The kernel raises its generation before it sends the events. So the events received count, not the generation. Every generation in between must
 * have been received, in any order: each transaction ends with an event of its own, NFT_MSG_NEWGEN. Our own transactions are added as changing
 * nothing, because their events are skipped. A read at the same time has to know of them in another way.
 */
import { isLater, nextGeneration } from "../kernel/generation.js";

/** A foreign transaction of a million elements sends events for seconds after its generation becomes visible. */
const LONGEST_WAIT_MS = 10_000;

export class Announcements {
  readonly #periods = new Set<Period>();
  #listening = false;

  constructor(readonly longestWaitMs = LONGEST_WAIT_MS) {}

  /** From now on, events are received (true) or no longer received (false). */
  listen(listening: boolean): void {
    this.#listening = listening;
    this.lost();
  }

  /** Events were lost. */
  lost(): void {
    for (const period of this.#periods) period.lost();
  }

  /** Notes that the transaction that led to this generation was received. */
  add(generation: number, changedTable: boolean): void {
    for (const period of this.#periods) period.add(generation, changedTable);
  }

  /** Notes the events received from now on, until the period ends. Undefined if nobody listens. */
  begin(): Period | undefined {
    if (!this.#listening) return undefined;
    const period = new Period(this.longestWaitMs, () => this.#periods.delete(period));
    this.#periods.add(period);
    return period;
  }
}

export class Period {
  readonly #received = new Set<number>();
  readonly #changed: number[] = [];
  #lost = false;
  /** Called for everything received. */
  #look: (() => void) | undefined;

  constructor(
    readonly longestWaitMs: number,
    readonly end: () => void,
  ) {}

  add(generation: number, changedTable: boolean): void {
    this.#received.add(generation);
    if (changedTable) this.#changed.push(generation);
    this.#look?.();
  }

  lost(): void {
    this.#lost = true;
    this.#look?.();
  }

  /**
   * Whether no transaction later than `since`, up to `until`, changed the table. Waits for events that have not arrived yet.
   * @param since read from the kernel after the period began, so all events of later transactions are sent after it.
   * @returns false also if this is unknown: events were lost, or do not arrive.
   */
  async untouched(since: number, until: number): Promise<boolean> {
    const isWithin = (generation: number): boolean => isLater(generation, since) && !isLater(generation, until);
    const { promise: decided, resolve } = Promise.withResolvers<void>();
    let complete = since;
    this.#look = () => {
      while (complete !== until && this.#received.has(nextGeneration(complete))) complete = nextGeneration(complete);
      if (complete === until || this.#lost || this.#changed.some(isWithin)) resolve();
    };
    const timer = setTimeout(() => this.lost(), this.longestWaitMs);
    this.#look();
    await decided;
    clearTimeout(timer);
    this.#look = undefined;
    return complete === until && !this.#lost && !this.#changed.some(isWithin);
  }
}

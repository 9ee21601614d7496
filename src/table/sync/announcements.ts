/**
 * Which transactions of the namespace events have told of, and whether one of them changed a table: a read during which other
 * tables changed is as good as one during which nothing did.
 *
 * The kernel raises its generation first and sends the events afterwards, so what counts is what was received, not what the
 * number says: every generation in between has to be received (each transaction ends with an event of its own, NFT_MSG_NEWGEN),
 * in whatever order. Our own transactions, whose changes are skipped, count as changing nothing: who reads beside them has to
 * know of them otherwise.
 */
import { isLater, nextGeneration } from "../../netlink/generation.js";

/** A foreign transaction of a million elements sends events for seconds after its generation can be read. */
const LONGEST_WAIT_MS = 10_000;

export class Announcements {
  readonly #periods = new Set<Period>();
  #listening = false;

  constructor(readonly longestWaitMs = LONGEST_WAIT_MS) {}

  /** Events are received from now on, or no more. */
  listen(listening: boolean): void {
    this.#listening = listening;
    this.lost();
  }

  /** Some are missing. */
  lost(): void {
    for (const period of this.#periods) period.lost();
  }

  /** The transaction that led to this generation was received. */
  add(generation: number, changedTable: boolean): void {
    for (const period of this.#periods) period.add(generation, changedTable);
  }

  /** Notes what is received from now on, until it is ended. Undefined: nothing is. */
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
  /** Told of all that is received. */
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
   * Whether no transaction later than `since`, up to `until`, changed the table; waits for events that are still to come.
   * @param since read from the kernel after the beginning: all events of later ones are sent after it.
   * @returns false also when that cannot be told: events were lost, or do not come.
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

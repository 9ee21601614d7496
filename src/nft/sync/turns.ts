import { TableError, toTableError } from "./results.js";

/** The calls of one table, which run one after the other. */
export class Turns {
  #last: Promise<unknown> = Promise.resolve();
  #closed = false;

  /** @param table its name, for errors. */
  constructor(readonly table: string) {}

  /** Runs a call on the kernel after all earlier calls. Rejects with TableError. */
  take<T>(call: () => Promise<T>): Promise<T> {
    return this.queue(() => this.named(call));
  }

  /** Runs the call after all earlier ones, and rejects as it does. */
  queue<T>(call: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(() => {
      if (this.#closed) throw new TableError("closed", `${this.table}: the table is closed`);
      return call();
    });
    this.#last = turn.catch(() => undefined);
    return turn;
  }

  /** Runs a part that only reads, outside of other calls. A new call may start meanwhile: then the part is repeated, and further calls wait. */
  async undisturbed<T>(part: () => Promise<T>): Promise<T> {
    const last = this.#last;
    await last;
    if (last === this.#last && !this.#closed) {
      const result = await this.named(part);
      if (last === this.#last) return result;
    }
    return this.take(part);
  }

  /** Runs the call at once, with errors that name the table. */
  async named<T>(call: () => Promise<T>): Promise<T> {
    try {
      return await call();
    } catch (error) {
      throw toTableError(this.table, error);
    }
  }

  /** Refuses further calls. */
  close(): void {
    this.#closed = true;
  }
}

/** Closes resources in reverse order of opening. A failure does not keep the others open. */
export class Closers {
  readonly #closers: (() => void | Promise<void>)[] = [];

  add(close: () => void | Promise<void>): void {
    this.#closers.push(close);
  }

  /** Rejects with the first failure after trying all. */
  async close(): Promise<void> {
    let failure: { error: unknown } | undefined;
    for (const close of this.#closers.splice(0).toReversed()) {
      try {
        await close();
      } catch (error) {
        failure ??= { error };
      }
    }
    if (failure !== undefined) throw failure.error;
  }
}

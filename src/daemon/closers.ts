/** What is to be closed at the end, in reverse order of its opening; one that fails keeps none of the others open. */
export class Closers {
  readonly #closers: (() => void | Promise<void>)[] = [];

  add(close: () => void | Promise<void>): void {
    this.#closers.push(close);
  }

  /** Rejects with the first failure, after everything was tried. */
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

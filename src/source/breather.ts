/** Work between two turns of the event loop, ms: two such pieces may fall into one turn, and a collection of garbage on top. */
const SLICE_MS = 4;

/** Lets timers, signals and sockets have a turn when work has gone on for a while. */
export class Breather {
  #since = performance.now();

  /** To be called when work begins after a wait. */
  begin(): void {
    this.#since = performance.now();
  }

  get due(): boolean {
    return performance.now() - this.#since >= SLICE_MS;
  }

  async rest(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    this.begin();
  }
}

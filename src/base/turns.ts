/** Long work in pieces, so that the event loop comes to everything else in between. */

/** Work between two turns of the event loop, ms: two such pieces may fall into one turn, and a collection of garbage on top. */
const SLICE_MS = 4;

/** Lets timers, sockets and signals have a turn. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Tells when work has gone on for long enough that others should have a turn. */
export class Breather {
  readonly #sliceMs: number;
  #since = performance.now();

  /** `sliceMs`: how long that is. */
  constructor(sliceMs = SLICE_MS) {
    this.#sliceMs = sliceMs;
  }

  /** To be called when work begins after a wait. */
  begin(): void {
    this.#since = performance.now();
  }

  get due(): boolean {
    return performance.now() - this.#since >= this.#sliceMs;
  }

  async rest(): Promise<void> {
    await turn();
    this.begin();
  }
}

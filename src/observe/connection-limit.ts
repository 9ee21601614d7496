import type { Socket } from "node:net";

/**
 * How many connections one server, or several together, hold at a time. At the limit the one that has been idle longest
 * is closed, and the new one is served: were the new one refused, a client that opens connections and asks nothing would
 * keep the probes out.
 *
 * A connection is idle unless a whole request head has come in and its answer has not been handed over. Half a request
 * is worth no more than none: sending one byte is no work. When no connection is idle, the oldest is closed.
 */
export class ConnectionLimit {
  readonly #max: number;
  /** Oldest first. */
  readonly #open = new Set<Socket>();
  /** Longest idle first. */
  readonly #idle = new Set<Socket>();

  constructor(max: number) {
    this.#max = max;
  }

  accepted(socket: Socket): void {
    if (this.#open.size >= this.#max) this.#closeOne();
    this.#open.add(socket);
    this.#idle.add(socket);
    socket.once("close", () => this.#forget(socket));
  }

  /** A request came in. */
  busy(socket: Socket): void {
    this.#idle.delete(socket);
  }

  /** It is answered. */
  idle(socket: Socket): void {
    if (this.#open.has(socket)) this.#idle.add(socket);
  }

  #closeOne(): void {
    const [victim] = this.#idle.size > 0 ? this.#idle : this.#open;
    if (victim === undefined) return;
    this.#forget(victim);
    victim.destroy();
  }

  #forget(socket: Socket): void {
    this.#open.delete(socket);
    this.#idle.delete(socket);
  }
}

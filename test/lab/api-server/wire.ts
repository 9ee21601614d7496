/** One response on its way to the client, and ways to disturb it. */
import type { ServerResponse } from "node:http";

export interface Pace {
  /** Bytes sent at a time. */
  readonly bytes: number;
  /** Pause between them, ms. */
  readonly everyMs: number;
}

export class Wire {
  readonly #response: ServerResponse;
  readonly #pace: Pace | undefined;
  /** Bytes that a slow wire has not sent yet. */
  #waiting: Buffer[] = [];
  #timer: NodeJS.Timeout | undefined;
  #stalled = false;
  #ending = false;

  constructor(response: ServerResponse, pace: Pace | undefined) {
    this.#response = response;
    this.#pace = pace;
    response.on("close", () => clearTimeout(this.#timer));
  }

  get open(): boolean {
    return !this.#ending && !this.#response.destroyed && !this.#response.writableEnded;
  }

  write(text: string | Buffer): void {
    if (!this.open || this.#stalled) return;
    if (this.#pace === undefined) this.#response.write(text);
    else this.#trickle(Buffer.from(text));
  }

  /** Ends the body normally. */
  end(): void {
    this.#ending = true;
    if (this.#stalled) return;
    if (this.#waiting.length === 0) this.#response.end();
  }

  /** Stops sending and does not close the connection: a peer behind a dead link. */
  stall(): void {
    this.#stalled = true;
    clearTimeout(this.#timer);
  }

  /** Breaks the connection after the written bytes. */
  cut(): void {
    this.#ending = true;
    const { socket } = this.#response;
    // Send the written bytes first; only the body's end is missing.
    if (socket === null) this.#response.destroy();
    else socket.end(() => socket.destroy());
  }

  #trickle(bytes: Buffer): void {
    this.#waiting.push(bytes);
    if (this.#timer === undefined) this.#sendPiece();
  }

  #sendPiece(): void {
    this.#timer = undefined;
    const rest = this.#waiting.length === 1 ? this.#waiting[0] : Buffer.concat(this.#waiting);
    const { bytes, everyMs } = this.#pace!;
    this.#response.write(rest.subarray(0, bytes));
    this.#waiting = rest.length > bytes ? [rest.subarray(bytes)] : [];
    if (this.#waiting.length > 0) this.#timer = setTimeout(() => this.#sendPiece(), everyMs);
    else if (this.#ending) this.#response.end();
  }
}

import { Backoff, type BackoffOptions } from "../base/backoff.js";
import type { ConnectionLimit } from "./connection-limit.js";
import { type HttpHandler, HttpListener, type ListenAddress, ListenError } from "./http-listener.js";

export interface RetryingListenerOptions {
  readonly address: ListenAddress;
  readonly handler: HttpHandler;
  /** By default a limit of its own: HttpListener's. */
  readonly connections?: ConnectionLimit;
  /** Waits between attempts. */
  readonly retry: BackoffOptions;
  /** It cannot listen. Said once for each reason, until it listens. */
  readonly onFailed: (error: ListenError) => void;
  readonly onListening: () => void;
  /** A request could not be answered, or a connection not be accepted. */
  readonly onRequestFailed: (error: unknown) => void;
}

/** Listens as soon as it can: an address that cannot be had is tried again, until it is closed. */
export class RetryingListener {
  readonly #options: RetryingListenerOptions;
  readonly #listener: HttpListener;
  #timer: NodeJS.Timeout | undefined;
  #attempt: Promise<void> | undefined;
  readonly #backoff: Backoff;
  #said: string | undefined;
  #closed = false;

  constructor(options: RetryingListenerOptions) {
    this.#options = options;
    this.#backoff = new Backoff(options.retry);
    const { address, handler, onRequestFailed, connections } = options;
    this.#listener = new HttpListener(address, handler, onRequestFailed, connections);
  }

  /** The port that it listens on; undefined while it does not. */
  get port(): number | undefined {
    return this.#listener.port;
  }

  /** The last attempt failed. */
  get failing(): boolean {
    return this.#backoff.failures > 0;
  }

  /** Resolves after the first attempt, whatever came of it; more follow if need be. */
  async open(): Promise<void> {
    this.#timer = undefined;
    this.#attempt = this.#try();
    await this.#attempt;
  }

  /** The one attempt there will be; rejects with a ListenError. */
  async openOnce(): Promise<void> {
    const attempt = this.#listener.listen();
    this.#attempt = attempt.catch(() => undefined);
    await attempt;
    if (!this.#closed) this.#options.onListening();
  }

  /** Does not wait any longer for the next attempt. */
  hurry(): void {
    if (this.#timer === undefined) return;
    clearTimeout(this.#timer);
    void this.open();
  }

  /** The port is free at once, or as soon as an attempt that is under way is over. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    // An attempt that is closed half way has no end.
    if (this.port === undefined) await this.#attempt;
    await this.#listener.close();
  }

  async #try(): Promise<void> {
    try {
      await this.#listener.listen();
    } catch (error) {
      if (!this.#closed)
        this.#again(error instanceof ListenError ? error : new ListenError(this.#options.address, error));
      return;
    }
    if (this.#closed) return;
    this.#backoff.reset();
    this.#said = undefined;
    this.#options.onListening();
  }

  #again(error: ListenError): void {
    this.#timer = setTimeout(() => void this.open(), this.#backoff.next());
    if (error.message === this.#said) return;
    this.#said = error.message;
    this.#options.onFailed(error);
  }
}

import type { NativeAddon } from "./addon.js";
import { KernelError } from "./errors.js";
import { translate } from "./native-error.js";

/** A stream of events that continues until it is closed. */
interface Stream {
  close(): Promise<void>;
}

/** Calls and streams of events on a handle of the addon. `end` waits for the calls, and ends the streams. */
export class NativeCalls<Handle> {
  readonly addon: NativeAddon;
  readonly handle: Handle;
  readonly #what: string;
  readonly #running = new Set<Promise<unknown>>();
  readonly #streams = new Set<Stream>();
  #closing: Promise<void> | undefined;

  /** @param what the handle's name in errors, such as "connection". */
  constructor(what: string, addon: NativeAddon, handle: Handle) {
    this.#what = what;
    this.addon = addon;
    this.handle = handle;
  }

  get closed(): boolean {
    return this.#closing !== undefined;
  }

  /** Fails with the addon's error as a KernelError, or with "closed". */
  async run<T>(action: string, call: (addon: NativeAddon, handle: Handle) => Promise<T>): Promise<T> {
    if (this.closed) throw new KernelError("closed", `${action}: the ${this.#what} is closed`, { action });
    const running = (async () => call(this.addon, this.handle))();
    this.#running.add(running);
    try {
      return await running;
    } catch (error) {
      throw translate(error, action);
    } finally {
      this.#running.delete(running);
    }
  }

  /** Returns a stream, which ends if it or the handle is closed. `end` is called once. */
  stream(end: () => void): Stream {
    const stream: Stream = {
      close: async () => {
        if (this.#streams.delete(stream)) end();
      },
    };
    this.#streams.add(stream);
    return stream;
  }

  /** Waits for running calls, closes the streams, and then the handle with `close`, once. Later calls fail with "closed". */
  async end(close: () => void): Promise<void> {
    this.#closing ??= (async () => {
      await Promise.allSettled(this.#running);
      await Promise.all([...this.#streams].map(async (stream) => stream.close()));
      close();
    })();
    return this.#closing;
  }
}

/** Calls a handler of events. Its exceptions are thrown from a microtask, so that later events are delivered as well. */
export function rethrowLater(handle: () => void): void {
  try {
    handle();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

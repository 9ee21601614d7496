import { KernelError } from "./errors.js";
import { translate } from "./native-error.js";

/** Something that goes on until it is closed. */
interface Stream {
  close(): Promise<void>;
}

/** What is under way on a handle of the addon: its end waits for calls, and ends streams of events. */
export class NativeCalls {
  readonly #what: string;
  readonly #running = new Set<Promise<unknown>>();
  readonly #streams = new Set<Stream>();
  #closing: Promise<void> | undefined;

  /** `what` the handle is, for errors: "connection". */
  constructor(what: string) {
    this.#what = what;
  }

  get closed(): boolean {
    return this.#closing !== undefined;
  }

  /** Fails with the addon's error as a KernelError, or with "closed". */
  async run<T>(action: string, call: () => Promise<T>): Promise<T> {
    if (this.closed) throw new KernelError("closed", `${action}: the ${this.#what} is closed`, { action });
    const running = call();
    this.#running.add(running);
    try {
      return await running;
    } catch (error) {
      throw translate(error, action);
    } finally {
      this.#running.delete(running);
    }
  }

  /** A stream that is ended by whoever closes it, or with the handle. `end` is called once. */
  stream(end: () => void): Stream {
    const stream: Stream = {
      close: async () => {
        if (this.#streams.delete(stream)) end();
      },
    };
    this.#streams.add(stream);
    return stream;
  }

  /** Waits for what runs, closes the streams, then the handle with `close`, once. Calls after this fail with "closed". */
  async end(close: () => void): Promise<void> {
    this.#closing ??= (async () => {
      await Promise.allSettled(this.#running);
      await Promise.all([...this.#streams].map(async (stream) => stream.close()));
      close();
    })();
    return this.#closing;
  }
}

/** Calls a handler of events. What it throws surfaces in its own turn, so that the events behind this one are delivered as well. */
export function rethrowLater(handle: () => void): void {
  try {
    handle();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

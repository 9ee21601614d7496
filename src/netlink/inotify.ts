/** Events of directories, from inotify(7). The number read at once is limited, so that a fast writer cannot block the event loop. */
import type { Inotify, InotifyEvent, OpenInotify } from "../base/directory-watch.js";
import { loadAddon } from "../nft/kernel/addon.js";
import { translate } from "../nft/kernel/native-error.js";
import type { NativeInotify } from "../nft/kernel/nft-addon.js";

/** Maximum number of reads in direct succession. Each gets at most 32 KiB of events, and the others wait in the kernel's queue. */
const MOST_READS = 16;
/** Time after which one more read is allowed, ms. */
const READ_EVERY_MS = 50;

/** Opens an inotify instance on this event loop, which it keeps alive. Throws KernelError. */
export const openInotify: OpenInotify = (onEvents) => new AddonInotify(onEvents);

class AddonInotify implements Inotify {
  readonly #addon = loadAddon();
  readonly #handle: NativeInotify;
  #reads = MOST_READS;
  /** Time up to which #reads has been increased, ms of performance.now(). */
  #counted = performance.now();
  #rest: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(private readonly onEvents: (events: readonly InotifyEvent[]) => void) {
    this.#handle = translated("watch directories", () => this.#addon.inotifyOpen(() => this.#readable()));
    this.#addon.inotifyAwait(this.#handle);
  }

  add(path: string, mask: number): number | undefined {
    return translated("watch a directory", () => this.#addon.inotifyAdd(this.#handle, path, mask));
  }

  remove(watch: number): void {
    this.#addon.inotifyRemove(this.#handle, watch);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#rest);
    this.#addon.inotifyClose(this.#handle);
  }

  #readable(): void {
    this.onEvents(this.#addon.inotifyRead(this.#handle));
    if (this.#closed) return;
    const regained = Math.floor((performance.now() - this.#counted) / READ_EVERY_MS);
    this.#counted += regained * READ_EVERY_MS;
    this.#reads = Math.min(MOST_READS, this.#reads + regained) - 1;
    if (this.#reads > 0) return this.#addon.inotifyAwait(this.#handle);
    this.#rest = setTimeout(() => this.#addon.inotifyAwait(this.#handle), READ_EVERY_MS);
  }
}

function translated<T>(action: string, call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw translate(error, action);
  }
}

import type { Logger } from "../base/logger.js";
import type { Clock } from "../nft/engine-exports.js";
import type { ProxierObserver } from "./observer.js";

/** Shared by all parts of the proxier. */
export interface ProxierContext {
  readonly log: Logger;
  readonly clock: Clock;
  /** The proxier's own list of observers, which may grow. They are called in this order. */
  readonly observers: readonly ProxierObserver[];
}

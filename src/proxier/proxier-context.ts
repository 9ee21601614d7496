import type { Logger } from "../base/logger.js";
import type { Clock } from "../table/table-exports.js";
import type { ProxierObserver } from "./observer.js";

/** What all parts of the proxier have in common. */
export interface ProxierContext {
  readonly log: Logger;
  readonly clock: Clock;
  /** Told what happens, in this order. The proxier's own list, which grows. */
  readonly observers: readonly ProxierObserver[];
}

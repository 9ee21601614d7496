/** Recent events of the tables: repairs, rejections, takeovers. On a healthy node there are a few a day. */
import type { Logger } from "../../base/logger.js";
import type { StatusEvent } from "../../observe/status-report.js";

const KEPT_EVENTS = 300;

export class EventRing {
  readonly #events: StatusEvent[] = [];
  readonly #now: () => number;

  /** @param now returns Unix time, ms. */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** The last few hundred events, oldest first. */
  get items(): readonly StatusEvent[] {
    return this.#events;
  }

  note(type: StatusEvent["type"], message: string): void {
    this.#events.push({ at: this.#now(), type, message });
    if (this.#events.length > KEPT_EVENTS) this.#events.shift();
  }

  /** Logs the events, oldest first. */
  say(log: Logger): void {
    for (const { at, type, message } of this.#events) {
      log.info({ at: new Date(at).toISOString(), type, event: message }, "event");
    }
  }
}

/** Logs lasting failures: when they begin, from time to time while they last, and when they end. */
import type { Logger } from "../../base/logger.js";

export interface OngoingFailure {
  /** Its log message. */
  readonly message: string;
  readonly reason: string;
  /** Possible remedy, if known. */
  readonly hint?: string;
  /** How long it has lasted, ms. */
  readonly ms: number;
}

interface Failure {
  message: string;
  fields: Readonly<Record<string, unknown>>;
  readonly since: number;
  /** The line logged last; undefined if there is none yet. */
  logged: string | undefined;
  loggedAt: number;
  attempts: number;
}

/** A new reason is logged at most this often, ms. */
const NEW_REASON_MS = 30_000;

export class FailureLog {
  readonly #open = new Map<string, Failure>();

  constructor(
    private readonly log: Logger,
    private readonly repeatMs: number,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Current failures, except those whose next attempt is likely to succeed. */
  ongoing(): readonly OngoingFailure[] {
    return [...this.#open.values()].flatMap(({ message, fields, since, logged }) => {
      if (logged === undefined) return [];
      const { reason, hint } = fields;
      const ms = this.now() - since;
      return [
        {
          message,
          reason: typeof reason === "string" ? reason : "",
          hint: typeof hint === "string" ? hint : undefined,
          ms,
        },
      ];
    });
  }

  /** @param quiet do not log yet, because the next attempt is likely to succeed. */
  failed(topic: string, message: string, fields: Readonly<Record<string, unknown>>, quiet = false): void {
    const now = this.now();
    let failure = this.#open.get(topic);
    if (failure === undefined) {
      this.#open.set(
        topic,
        (failure = { message, fields, since: now, logged: undefined, loggedAt: -Infinity, attempts: 0 }),
      );
    }
    failure.message = message;
    failure.fields = fields;
    failure.attempts++;
    const text = `${message} ${JSON.stringify(fields)}`;
    const wait = text === failure.logged ? this.repeatMs : failure.logged === undefined ? 0 : NEW_REASON_MS;
    const lasting = { ...fields, attempts: failure.attempts, seconds: Math.round((now - failure.since) / 1000) };
    if (quiet || now - failure.loggedAt < wait) {
      this.log.debug(lasting, message);
      return;
    }
    this.log.warn(failure.logged === undefined ? fields : lasting, message);
    failure.logged = text;
    failure.loggedAt = now;
  }

  /** `topic` succeeded, possibly for the first time. */
  recovered(topic: string, message: string, fields: Readonly<Record<string, unknown>>): void {
    const failure = this.#open.get(topic);
    if (failure === undefined) return;
    this.#open.delete(topic);
    const seconds = Math.round((this.now() - failure.since) / 1000);
    const line = { ...fields, seconds, attempts: failure.attempts };
    if (failure.logged === undefined) this.log.debug(line, message);
    else this.log.info(line, message);
  }
}

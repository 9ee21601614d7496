/** Log of what does not work: once when it begins, now and then while it lasts, once when it is over. */
import type { Logger } from "../../base/logger.js";

interface Trouble {
  readonly since: number;
  /** What was said last, and when; undefined: nothing yet. */
  said: string | undefined;
  saidAt: number;
  attempts: number;
}

/** A reason that differs from the one said last is worth a line, but not more often than this, ms. */
const NEW_REASON_MS = 30_000;

export class Troubles {
  readonly #log: Logger;
  readonly #repeatMs: number;
  readonly #now: () => number;
  readonly #open = new Map<string, Trouble>();

  constructor(log: Logger, repeatMs: number, now: () => number = () => performance.now()) {
    this.#log = log;
    this.#repeatMs = repeatMs;
    this.#now = now;
  }

  /** Whether something is going wrong. */
  has(topic: string): boolean {
    return this.#open.has(topic);
  }

  /** `topic` is what fails, `quiet`: it may well be over with the next attempt, so that nothing is said yet. */
  failed(topic: string, message: string, fields: Readonly<Record<string, unknown>>, quiet = false): void {
    const now = this.#now();
    let trouble = this.#open.get(topic);
    if (trouble === undefined) {
      this.#open.set(topic, (trouble = { since: now, said: undefined, saidAt: -Infinity, attempts: 0 }));
    }
    trouble.attempts++;
    const text = `${message} ${JSON.stringify(fields)}`;
    const wait = text === trouble.said ? this.#repeatMs : trouble.said === undefined ? 0 : NEW_REASON_MS;
    const lasting = { ...fields, attempts: trouble.attempts, seconds: Math.round((now - trouble.since) / 1000) };
    if (quiet || now - trouble.saidAt < wait) {
      this.#log.debug(lasting, message);
      return;
    }
    this.#log.warn(trouble.said === undefined ? fields : lasting, message);
    trouble.said = text;
    trouble.saidAt = now;
  }

  /** It works, or works again. */
  worked(topic: string, message: string, fields: Readonly<Record<string, unknown>>): void {
    const trouble = this.#open.get(topic);
    if (trouble === undefined) return;
    this.#open.delete(topic);
    const seconds = Math.round((this.#now() - trouble.since) / 1000);
    const line = { ...fields, seconds, attempts: trouble.attempts };
    if (trouble.said === undefined) this.#log.debug(line, message);
    else this.#log.info(line, message);
  }
}

import { BoundedFrequencyRunner, type WriteOutcome } from "../../base/bounded-frequency-runner.js";
import { reasonOf } from "../../base/unknown.js";
import type { Logger } from "../../base/logger.js";
import type { EventRecorder, EventSubject, EventText } from "../../base/events.js";
import type { ApiConnection } from "./api-connection.js";
import { StatusError } from "./errors.js";
import { backoffOf, pause, type Timing } from "./timing.js";

interface EventRecorderOptions {
  /** Not closed by the recorder. */
  readonly connection: ApiConnection;
  readonly nodeName: string;
  readonly log: Logger;
  readonly timing?: Partial<EventTiming>;
}

export interface EventTiming extends Pick<Timing, "minBackoffMs" | "maxBackoffMs" | "answerIdleMs"> {
  /** The same Event within this time is counted, not sent again, ms. Corresponds to the end of a series in client-go. */
  readonly seriesMs: number;
  /** Minimum interval between updates of the count, ms. */
  readonly countMs: number;
}

const TIMING: EventTiming = {
  minBackoffMs: 1_000,
  maxBackoffMs: 30_000,
  answerIdleMs: 30_000,
  seriesMs: 360_000,
  countMs: 60_000,
};

/** kube-proxy's name, so that filters by controller find our Events. */
const CONTROLLER = "kube-proxy";
/** Attempts for one Event, over about five minutes. */
const MAX_ATTEMPTS = 12;
/** Number of remembered Events, including waiting ones. */
const MAX_EVENTS = 256;
/** The API server's limits: bytes of a note, characters of the other texts. */
const MAX_NOTE_BYTES = 1024;
const MAX_TEXT = 128;
/** Maximum length of the subject's name in the Event's name: names have up to 253 characters. */
const MAX_NAME = 200;

/** An Event, with the number of its occurrences. */
interface Series {
  readonly name: string;
  readonly namespace: string;
  readonly body: Readonly<Record<string, unknown>>;
  count: number;
  /** Unix ms. */
  lastAt: number;
  /** The count known to the server; 0 if it does not know the Event. */
  sent: number;
  /** Unix ms. */
  sentAt: number;
  /** Whether the server should know more than `sent`. */
  pending: boolean;
}

/**
 * Sends events.k8s.io/v1 Events in the background, one after another. A repeated Event is counted in its series. ClusterRole
 * system:node-proxier allows this. If it is forbidden, that is logged once.
 */
export class KubernetesEventRecorder implements EventRecorder {
  readonly #timing: EventTiming;
  readonly #instance: string;
  readonly #abort = new AbortController();
  /** Keyed by the fields that make Events equal, the oldest first. */
  readonly #series = new Map<string, Series>();
  readonly #runner = new BoundedFrequencyRunner(() => this.#sendPending(), { gapMs: 0, maxRetryMs: Infinity });
  #forbiddenLogged = false;
  #names = 0;

  constructor(private readonly options: EventRecorderOptions) {
    this.#timing = { ...TIMING, ...options.timing };
    this.#instance = `${CONTROLLER}-${options.nodeName}`.slice(0, MAX_TEXT);
  }

  record(subject: EventSubject, event: EventText): void {
    if (this.#abort.signal.aborted) return;
    const now = Date.now();
    const key = JSON.stringify([subject.kind, subject.namespace, subject.name, event.type, event.reason, event.action]);
    const known = this.#series.get(key);
    if (known !== undefined && now - known.lastAt < this.#timing.seriesMs) {
      known.count++;
      known.lastAt = now;
      known.pending = true;
      this.#runner.requestIn(Math.max(0, this.#dueAt(known) - now));
      return;
    }
    // The former series is not known to the server yet.
    if (known?.pending === true) this.#series.set(known.name, known);
    this.#series.delete(key);
    this.#series.set(key, this.#begin(subject, event, now));
    this.#forgetOldest();
    this.#runner.requestIn(0);
  }

  /** Allows waiting Events up to `graceMs` to be sent, and drops the rest. */
  async stop(graceMs = 1_000): Promise<void> {
    const timer = setTimeout(() => this.#abort.abort(), graceMs);
    await this.#runner.stop();
    await this.#sendPending();
    clearTimeout(timer);
    this.#abort.abort();
  }

  #begin(subject: EventSubject, event: EventText, now: number): Series {
    const uid =
      subject.uid ?? (subject.namespace === undefined ? subject.name : `${subject.namespace}/${subject.name}`);
    // Events of objects without a namespace go to "default".
    const namespace = subject.namespace ?? "default";
    const stem = subject.name.slice(0, MAX_NAME).replace(/[^a-z0-9]+$/, "");
    // client-go's format: nanoseconds in hex. The clock only has milliseconds, so a count makes it unique.
    const unique = (BigInt(now) * 1_000_000n + BigInt(this.#names++ % 1_000_000)).toString(16);
    const name = `${stem}.${unique}`;
    const body = {
      apiVersion: "events.k8s.io/v1",
      kind: "Event",
      metadata: { name, namespace },
      eventTime: microTime(now),
      reportingController: CONTROLLER,
      reportingInstance: this.#instance,
      action: event.action.slice(0, MAX_TEXT),
      reason: event.reason.slice(0, MAX_TEXT),
      regarding: { apiVersion: "v1", kind: subject.kind, name: subject.name, namespace: subject.namespace, uid },
      note: shortened(event.note),
      type: event.type,
    };
    return { name, namespace, body, count: 1, lastAt: now, sent: 0, sentAt: 0, pending: true };
  }

  #forgetOldest(): void {
    for (const [key, series] of this.#series) {
      if (this.#series.size <= MAX_EVENTS) return;
      this.#series.delete(key);
      if (series.pending) this.#lost(series, "too many Events are pending");
    }
  }

  /** Unix time from which the server may be told a new count, ms. */
  #dueAt({ sentAt }: Series): number {
    return sentAt + this.#timing.countMs;
  }

  /** Sends what is due, the oldest first. */
  async #sendPending(): Promise<WriteOutcome> {
    for (const series of this.#series.values()) {
      if (!series.pending || this.#dueAt(series) > Date.now()) continue;
      series.pending = false;
      const failure = await this.#deliver(series);
      if (failure !== undefined) this.#notSent(series, failure);
    }
    const due = [...this.#series.values()].filter(({ pending }) => pending).map((series) => this.#dueAt(series));
    return { ok: true, ...(due.length > 0 && { againMs: Math.max(0, Math.min(...due) - Date.now()) }) };
  }

  /** Tries repeatedly while that makes sense. Returns the last error if it did not succeed. */
  async #deliver(series: Series): Promise<unknown> {
    const { signal } = this.#abort;
    const backoff = backoffOf(this.#timing);
    for (;;) {
      try {
        await this.#send(series);
        return undefined;
      } catch (error) {
        if (!mayPass(error) || backoff.failures + 1 >= MAX_ATTEMPTS) return error;
        await pause(backoff.next(), signal);
        if (signal.aborted) return error;
      }
    }
  }

  /** Resolves when the server has stored the Event. */
  async #send(series: Series): Promise<void> {
    const { count, lastAt, sent } = series;
    const collection = `/apis/events.k8s.io/v1/namespaces/${encodeURIComponent(series.namespace)}/events`;
    const counted = count > 1 ? { series: { count, lastObservedTime: microTime(lastAt) } } : {};
    try {
      if (sent > 0) {
        await this.#request("PATCH", `${collection}/${series.name}`, "application/merge-patch+json", counted);
      } else {
        await this.#request("POST", collection, "application/json", { ...series.body, ...counted });
      }
    } catch (error) {
      const status = error instanceof StatusError ? error.status : 0;
      // An Event lives for an hour, so the Event to count may be gone. If it already exists, an earlier request succeeded but
      // its answer was lost.
      if (sent > 0 && status === 404) {
        series.sent = 0;
        return this.#send(series);
      }
      if (sent > 0 || status !== 409) throw error;
    }
    series.sent = count;
    series.sentAt = Date.now();
  }

  #request(method: "POST" | "PATCH", path: string, type: string, body: object): Promise<void> {
    const { signal } = this.#abort;
    const { answerIdleMs: idleMs } = this.#timing;
    return this.options.connection.send({ method, path, body: { type, text: JSON.stringify(body) }, signal, idleMs });
  }

  #notSent(series: Series, failure: unknown): void {
    const reason = reasonOf(failure);
    if (failure instanceof StatusError && failure.status === 403) {
      if (this.#forbiddenLogged) return;
      this.#forbiddenLogged = true;
      const hint = "bind ClusterRole system:node-proxier to this user";
      this.options.log.warn({ reason, hint }, "Events rejected by the API server; logged once");
      return;
    }
    this.#lost(series, reason);
  }

  #lost({ body }: Series, reason: string): void {
    this.options.log.warn({ event: body["reason"], note: body["note"], reason }, "Event not sent");
  }
}

/** Whether another attempt could succeed. */
function mayPass(failure: unknown): boolean {
  if (!(failure instanceof StatusError)) return true;
  return failure.status >= 500 || failure.status === 429 || failure.status === 401;
}

/** metav1.MicroTime. */
function microTime(ms: number): string {
  return new Date(ms).toISOString().replace("Z", "000Z");
}

function shortened(note: string): string {
  const bytes = Buffer.from(note);
  if (bytes.length <= MAX_NOTE_BYTES) return note;
  // A character that is cut apart becomes U+FFFD, which takes up to three bytes.
  return `${bytes.subarray(0, MAX_NOTE_BYTES - 6).toString()}...`;
}

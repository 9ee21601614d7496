/**
 * One bad thing stays one bad thing: a service that the kernel refuses is set aside, and the rest is written.
 *
 *   wanted ──refused──► as it was when the kernel last took it ──refused──► nothing of it
 *      ▲                                 │                                      │
 *      └──────────── tried again: when it changes, and later and later ─────────┘
 *
 * What the kernel holds of the service stays: old endpoints are better than none. It goes if another service has been given one of its
 * addresses meanwhile, since two states that serve one address contradict each other. After a restart nothing is known of how a service was, so a
 * service that is refused at the first write has nothing.
 */
import { TimeSlice } from "../base/time-slice.js";
import { Backoff } from "../base/backoff.js";
import { reasonOf } from "../base/unknown.js";
import type { IpFamily, ServicePortView } from "../model/types.js";
import { type Logger, serviceFields } from "../base/logger.js";
import type { FamilyRuleset, ServiceState } from "../ruleset/ruleset.js";
import { type Clock, type FaultyObject, TableError } from "../table/index.js";
import { findRefused } from "./bisect.js";
import { Claims } from "./claims.js";
import type { ProxierObserver } from "./observer.js";

/** First wait before a service that was set aside is tried again although it did not change, ms; doubles from there. */
const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 300_000;
/** Transactions in a row that may name somebody else each time, before the next attempt is left to the usual pace. */
const MAX_ROUNDS = 16;

const NOTHING: ServiceState = Object.freeze([]);

/** Refusals that depend on what was sent. */
const BY_CONTENT: ReadonlySet<string> = new Set(["refused", "too-large", "invalid"]);

/** A service that the kernel has not seen yet as it is wanted. */
interface Unwritten {
  readonly wanted: readonly ServicePortView[];
  /** As the kernel took it last. */
  readonly former: ServiceState;
}

interface Aside {
  wanted: readonly ServicePortView[];
  reason: string;
  /** ms of the clock. */
  retryAt: number;
  readonly backoff: Backoff;
}

/** What is forbidden is so whatever is sent. */
function dependsOnContent({ code, faulty }: TableError): boolean {
  return BY_CONTENT.has(code) && !faulty.some(({ errno }) => errno === "EPERM");
}

/** A commit that fails as a whole is answered to its first message (nfnetlink_rcv_batch), whatever was at fault. */
function mayBeAnybodys(faulty: readonly FaultyObject[]): boolean {
  const [first] = faulty;
  return faulty.length === 1 && first.position === 0 && first.key === undefined && first.text === undefined;
}

export interface IsolationOptions {
  readonly family: IpFamily;
  readonly ruleset: FamilyRuleset;
  readonly log: Logger;
  readonly clock: Clock;
  readonly observers: readonly ProxierObserver[];
}

export class Isolation {
  readonly #options: IsolationOptions;
  readonly #ruleset: FamilyRuleset;
  readonly #unwritten = new Map<string, Unwritten>();
  readonly #aside = new Map<string, Aside>();
  #restored: string[] = [];
  /** Writes in a row that failed without a word about what. */
  #nameless = 0;

  constructor(options: IsolationOptions) {
    this.#options = options;
    this.#ruleset = options.ruleset;
  }

  /** Services that are not in force as they are wanted. */
  get aside(): string[] {
    return [...this.#aside.keys()].filter((service) => !this.#unwritten.has(service));
  }

  /** Services that came back with the writes since the last call. */
  takeRestored(): string[] {
    const restored = this.#restored;
    this.#restored = [];
    return restored;
  }

  /** Ms until a service that is set aside is tried again; undefined when there is none. */
  get nextRetryMs(): number | undefined {
    const waiting = this.aside.map((service) => this.#aside.get(service)?.retryAt ?? 0);
    return waiting.length === 0 ? undefined : Math.max(0, Math.min(...waiting) - this.#options.clock.now());
  }

  /** Wants these views of the service; one that was set aside is tried again. */
  update(service: string, wanted: readonly ServicePortView[]): void {
    if (wanted.length === 0 && this.#hasNothing(service)) return;
    this.#giveUpClaims(service, wanted);
    const former = this.#unwritten.get(service)?.former ?? this.#ruleset.state(service);
    this.#tryWanted(service, { wanted, former });
  }

  /**
   * Writes with `apply`, again and again without what is refused. Throws what `apply` threw when that is nobody's fault in particular;
   * then everything stays wanted.
   */
  async write<Result>(apply: () => Promise<Result>): Promise<Result[]> {
    this.#retryDue();
    const results: Result[] = [];
    for (let round = 0; ; round++) {
      try {
        results.push(await apply());
        this.#allWritten();
        this.#nameless = 0;
        return results;
      } catch (error) {
        if (!(error instanceof TableError) || !dependsOnContent(error) || round >= MAX_ROUNDS) throw error;
        if (this.#setNamedAside(error)) continue;
        if (!this.#worthSearching(error)) throw error;
        const found = await this.#search(apply, results, error);
        if (!found) throw error;
      }
    }
  }

  /** Sets aside whom the kernel named. False when it named nobody, or something that is no service's. */
  #setNamedAside(error: TableError): boolean {
    if (mayBeAnybodys(error.faulty)) return false;
    const former = [...this.#unwritten].map(([service, entry]) => [service, entry.former] as const);
    const attributions = this.#ruleset.attribute(error.faulty, former);
    // What comes first may be the reason for all that follows.
    if (attributions[0]?.service === undefined) return false;
    const reasons = new Map<string, string>();
    for (const { service, what } of attributions) {
      if (service !== undefined && !reasons.has(service)) reasons.set(service, what);
    }
    const claims = new Claims(this.#unwritten, this.#ruleset);
    // All of them, and only then a look at whether that was any use.
    return [...reasons].map(([service, reason]) => this.#fallBack(service, reason, claims)).includes(true);
  }

  /** The first refusal without a name may pass by itself: memory was short. */
  #worthSearching(error: TableError): boolean {
    if (this.#unwritten.size === 0) return false;
    return error.code !== "refused" || error.faulty.length > 0 || ++this.#nameless > 1;
  }

  /** Finds by halves which of the services that changed are refused, and writes the others. */
  async #search(apply: () => Promise<unknown>, results: unknown[], error: TableError): Promise<boolean> {
    const unwritten = new Map(this.#unwritten);
    const groups = new Claims(unwritten, this.#ruleset).groups();
    const each = async (
      list: readonly (readonly string[])[],
      act: (service: string, change: Unwritten) => void,
    ): Promise<void> => {
      const timeSlice = new TimeSlice();
      for (const service of list.flat()) {
        const change = unwritten.get(service);
        if (change !== undefined) act(service, change);
        if (timeSlice.spent) await timeSlice.yield();
      }
    };
    const { refused, untried } = await findRefused(groups, {
      forward: (list) => each(list, (service, change) => this.#tryWanted(service, change)),
      back: async (list) => {
        await each(list, (service, { former }) => this.#ruleset.restore(service, former));
        // What they shared goes with the last of them: it may be what is refused.
        this.#ruleset.collectUnused(this.#options.clock.now(), 0);
      },
      works: async (list) => {
        try {
          results.push(await apply());
        } catch (failure) {
          if (failure instanceof TableError && dependsOnContent(failure)) return false;
          throw failure;
        }
        this.#written(list.flat());
        return true;
      },
    });
    for (const service of refused.flat()) this.#noteAside(service, error.message);
    return untried.length === 0;
  }

  /** Everything that was to be written is in force. */
  #allWritten(): void {
    const restored = [...this.#aside.keys()].filter((service) => this.#unwritten.has(service));
    // Not one by one: there may be as many as there are services.
    this.#unwritten.clear();
    for (const service of restored) this.#restore(service);
  }

  /** A service of the other family, say: there is nothing to remember of each of them. */
  #hasNothing(service: string): boolean {
    return this.#ruleset.state(service).length === 0 && !this.#unwritten.has(service) && !this.#aside.has(service);
  }

  /** Everything of these is in force. */
  #written(services: readonly string[]): void {
    for (const service of services) {
      this.#unwritten.delete(service);
      if (this.#aside.has(service)) this.#restore(service);
    }
  }

  #restore(service: string): void {
    this.#aside.delete(service);
    this.#restored.push(service);
    const { family, log, observers } = this.#options;
    log.info({ family, ...serviceFields(service) }, "service released from quarantine");
    for (const observer of observers) observer.restored?.({ family, service });
  }

  #retryDue(): void {
    const now = this.#options.clock.now();
    for (const [service, { wanted, retryAt }] of this.#aside) {
      if (retryAt > now || this.#unwritten.has(service)) continue;
      this.#tryWanted(service, { wanted, former: this.#ruleset.state(service) });
    }
  }

  /** What cannot be expressed is set aside as if the kernel had refused it. */
  #tryWanted(service: string, change: Unwritten): void {
    this.#unwritten.set(service, change);
    try {
      this.#ruleset.update(service, change.wanted);
    } catch (error) {
      this.#ruleset.restore(service, change.former);
      this.#noteAside(service, reasonOf(error));
    }
  }

  /** One step back for the service. False when there is none: the kernel refuses even that it is gone. */
  #fallBack(service: string, reason: string, claims: Claims): boolean {
    const present = this.#ruleset.state(service);
    const former = this.#unwritten.get(service)?.former ?? NOTHING;
    const target = claims.takenFrom(service, former) ? NOTHING : former;
    const wanted = this.#unwritten.get(service)?.wanted ?? this.#aside.get(service)?.wanted;
    if (present.length === 0 && target.length === 0) return false;
    this.#ruleset.restore(service, target);
    this.#noteAside(service, reason, wanted ?? present.map(({ view }) => view));
    return true;
  }

  /** The service is as it was, or gone: remembers what was wanted of it. */
  #noteAside(service: string, reason: string, wanted = this.#unwritten.get(service)?.wanted ?? []): void {
    this.#unwritten.delete(service);
    const { family, log, clock, observers } = this.#options;
    const before = this.#aside.get(service);
    const backoff = before?.backoff ?? new Backoff({ firstMs: FIRST_RETRY_MS, longestMs: LONGEST_RETRY_MS });
    const waitMs = backoff.next();
    this.#aside.set(service, { wanted, reason, backoff, retryAt: clock.now() + waitMs });
    const fields = { family, ...serviceFields(service), refused: reason, retryMs: waitMs };
    if (before !== undefined && before.reason === reason) {
      log.debug(fields, "service still refused by the kernel");
      return;
    }
    log.error(fields, "service quarantined; refused by the kernel");
    if (before !== undefined) return;
    for (const observer of observers) observer.setAside?.({ family, service, reason });
  }

  /** What is kept of services that were set aside must not serve what another one is given. */
  #giveUpClaims(service: string, wanted: readonly ServicePortView[]): void {
    if (this.#aside.size === 0) return;
    for (const other of this.#aside.keys()) {
      if (other === service || this.#unwritten.has(other)) continue;
      const kept = this.#ruleset.state(other);
      if (kept.length > 0 && Claims.overlap(wanted, kept)) this.#ruleset.restore(other, NOTHING);
    }
  }
}

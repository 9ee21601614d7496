/**
 * Isolates failures: quarantines a service that the kernel rejects, and writes the rest.
 *
 *   desired ──refused──► last state that the kernel accepted ──refused──► no state
 *      ▲                                 │                                   │
 *      └──────────── retried: when it changes, and with backoff ─────────────┘
 *
 * The kernel keeps the service's former state, because old endpoints are better than none. A port of it is removed if
 * another service has meanwhile been given one of its addresses: two states that serve the same address contradict each
 * other. A retry uses the service's current views and is processed like a change, so a large service is written in
 * pieces. After a restart, the former state is unknown, so a service that is rejected at the first write has none.
 *
 * If the kernel does not say which service is at fault, all changes that it rejected together go back to their former
 * state. They are retried a few at a time (suspects.ts). Each write first writes new changes, and then spends a little
 * time on such retries.
 */
import { TimeSlice } from "../base/time-slice.js";
import { Backoff } from "../base/backoff.js";
import { reasonOf } from "../base/unknown.js";
import type { IpFamily } from "../base/ip.js";
import type { ServicePortView } from "../model/service-port-view.js";
import { serviceFields } from "../base/logger.js";
import type { FamilyRuleset, PieceOptions, ServiceState } from "../ruleset/family-ruleset.js";
import { type FaultyObject, TableError } from "../nft/engine-exports.js";
import { type Change, ChangedClaims, withoutClaims } from "./changed-claims.js";
import type { ProxierContext } from "./proxier-context.js";
import { type Group, Suspects } from "./suspects.js";

/** Waits before a quarantined service is retried without a change, ms: the first, and the longest. */
const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 300_000;
/**
 * Maximum number of transactions in a row that may each name another service. After that, the next attempt follows the
 * usual pace.
 */
const MAX_ROUNDS = 16;
/**
 * No further retry begins after this time from the start of a write, ms, because changes that come meanwhile wait for
 * the write.
 */
const TRIES_MS = 25;

const NOTHING: ServiceState = Object.freeze([]);

/** Refusals that depend on the content. */
const BY_CONTENT: ReadonlySet<string> = new Set(["refused", "too-large", "invalid"]);

interface Quarantined {
  reason: string;
  /** ms of the clock. */
  retryAt: number;
  readonly backoff: Backoff;
  /**
   * Found at fault while the kernel accepted other changes. If it is rejected again, it is at fault without further
   * proof.
   */
  readonly isProved: boolean;
  /** Rejected together with others. They are retried one by one, because not all of them may be at fault. */
  readonly isOneOfMany: boolean;
}

/** Missing permission does not depend on the content. */
function dependsOnContent({ code, faulty }: TableError): boolean {
  return BY_CONTENT.has(code) && !faulty.some(({ errno }) => errno === "EPERM");
}

/**
 * For a commit that fails as a whole, the kernel reports its first message (nfnetlink_rcv_batch), whatever was at
 * fault.
 */
function mayBeAny(faulty: readonly FaultyObject[]): boolean {
  const [first] = faulty;
  return faulty.length === 1 && first.position === 0 && first.key === undefined && first.text === undefined;
}

/**
 * Whether the kernel refuses to remove an object other than an element. Then no service is at fault, and trying
 * services one by one would remove unrelated ones from the kernel.
 */
function isStructural(faulty: readonly FaultyObject[]): boolean {
  if (faulty.length === 0 || mayBeAny(faulty)) return false;
  const [{ kind, operation = "" }] = faulty;
  return kind !== "element" && /^(?:delete|flush) /.test(operation);
}

interface QuarantineOptions extends ProxierContext {
  readonly family: IpFamily;
  readonly ruleset: FamilyRuleset;
}

export class Quarantine {
  readonly #ruleset: FamilyRuleset;
  /** Services whose current state the kernel has not seen yet, with the last state that it accepted. */
  readonly #unwritten = new Map<string, ServiceState>();
  readonly #quarantined = new Map<string, Quarantined>();
  /** Services that are being updated in pieces without a refusal so far. */
  readonly #inPieces = new Set<string>();
  readonly #suspects: Suspects;

  constructor(private readonly options: QuarantineOptions) {
    this.#ruleset = options.ruleset;
    this.#suspects = new Suspects(options.family);
  }

  /** Services that are not active as desired. */
  get services(): string[] {
    return [...new Set([...this.#waiting(), ...this.#suspects.services])];
  }

  /** Whether changes that the kernel rejected together wait for a retry. */
  get hasSuspects(): boolean {
    return this.#suspects.size > 0;
  }

  /** Time until a quarantined service is due for a retry, ms. Undefined if there is none. */
  get nextRetryMs(): number | undefined {
    if (this.hasSuspects) return 0;
    const waiting = this.#waiting().map((service) => this.#quarantined.get(service)?.retryAt ?? 0);
    return waiting.length === 0 ? undefined : Math.max(0, Math.min(...waiting) - this.options.clock.now());
  }

  /**
   * Returns the quarantined services that are due. The caller must update each to its current views. Services that are
   * not due yet will be later. If the kernel rejected several services together, returns only the one that has waited
   * longest.
   */
  takeDue(): string[] {
    const now = this.options.clock.now();
    const due: string[] = [];
    let ofMany: string | undefined;
    for (const service of this.#waiting()) {
      const { retryAt, isOneOfMany } = this.#quarantined.get(service)!;
      if (retryAt > now) continue;
      if (!isOneOfMany) due.push(service);
      else if (retryAt < (this.#quarantined.get(ofMany ?? "")?.retryAt ?? Infinity)) ofMany = service;
    }
    if (ofMany !== undefined) due.push(ofMany);
    for (const service of due) this.#quarantined.get(service)!.retryAt = now + LONGEST_RETRY_MS;
    return due;
  }

  /** Quarantined services that are not being retried. */
  #waiting(): string[] {
    return [...this.#quarantined.keys()].filter(
      (service) => !this.#unwritten.has(service) && !this.#suspects.has(service),
    );
  }

  /**
   * Makes these views of the service desired, in pieces, and yields like FamilyRuleset.updateInPieces. A quarantined service is
   * retried. `write` may be called in between. Returns false if the service is quarantined, for example because the kernel rejected a piece.
   */
  *updateInPieces(
    service: string,
    desired: readonly ServicePortView[],
    options: PieceOptions = {},
  ): Generator<number | undefined, boolean> {
    if (desired.length === 0 && this.#hasNothing(service)) return true;
    this.#retryRelated(service, desired);
    this.#giveUpClaims(service, desired);
    this.#inPieces.add(service);
    const before = this.#ruleset.state(service);
    try {
      let pieces = this.#ruleset.updateInPieces(service, desired, options);
      for (;;) {
        if (!this.#inPieces.has(service)) return false;
        // The pieces written so far are the state to fall back to.
        if (!this.#unwritten.has(service)) this.#unwritten.set(service, [...this.#ruleset.state(service)]);
        const { done, value } = pieces.next();
        if (done !== true) yield value;
        else if (value) return true;
        // The service's state was changed elsewhere, so continue from there.
        else pieces = this.#ruleset.updateInPieces(service, desired, options);
      }
    } catch (error) {
      if (this.#ruleset.state(service) !== before)
        this.#ruleset.restore(service, this.#unwritten.get(service) ?? NOTHING);
      this.#put(service, reasonOf(error));
      return false;
    } finally {
      this.#inPieces.delete(service);
    }
  }

  /**
   * Writes with `apply`, without the changes that are rejected. Throws the error from `apply` if no single service is
   * at fault.
   * @param apply called with whether the write tests suspects.
   */
  async write<Result>(apply: (isTry: boolean) => Promise<Result>): Promise<Result[]> {
    const { clock } = this.options;
    const until = clock.now() + TRIES_MS;
    const results: Result[] = [];
    const refusal = await this.#attempt(() => apply(false), results);
    if (refusal !== undefined) {
      const changes = await this.#goBack();
      if (changes.size === 0) throw refusal;
      this.#suspects.add(changes);
      // Write without any of them. If that is rejected too, they are not the cause.
      const another = await this.#attempt(() => apply(false), results);
      if (another !== undefined) throw another;
    }
    while (this.hasSuspects) {
      await this.#try(this.#suspects.takeNext(), () => apply(true), results);
      if (clock.now() >= until) break;
    }
    return results;
  }

  /** Makes all suspects desired again, so that the next write contains everything. */
  async forwardSuspects(): Promise<void> {
    await this.#forward(this.#suspects.takeAll());
  }

  /**
   * Writes, and repeats that without the services that the kernel names. Returns a refusal that names none. Throws
   * errors that are not about services.
   */
  async #attempt<Result>(apply: () => Promise<Result>, results: Result[]): Promise<TableError | undefined> {
    for (let round = 0; ; round++) {
      try {
        results.push(await apply());
        this.written();
        return undefined;
      } catch (error) {
        if (!(error instanceof TableError) || !dependsOnContent(error) || round >= MAX_ROUNDS) throw error;
        if (this.#quarantineNamed(error)) continue;
        if (isStructural(error.faulty)) throw error;
        return error;
      }
    }
  }

  /**
   * Writes these groups, which stop being suspects. If the result is inconclusive, makes them suspects again and
   * throws.
   */
  async #try<Result>(groups: readonly Group[], apply: () => Promise<Result>, results: Result[]): Promise<void> {
    await this.#forward(groups);
    let refusal: TableError | undefined;
    try {
      refusal = await this.#attempt(apply, results);
    } catch (error) {
      this.#suspects.add(await this.#goBack());
      throw error;
    }
    if (refusal === undefined) return this.#suspects.accepted(groups.length);
    const changes = await this.#goBack();
    const wereProved = [...changes.keys()].every((service) => this.#quarantined.get(service)?.isProved === true);
    if (this.#suspects.refused(changes, groups.length, wereProved)) {
      const how = { isProved: this.#suspects.hasProof, isOneOfMany: changes.size > 1 };
      for (const service of changes.keys()) this.#put(service, refusal.message, how);
    }
    // The kernel has named all of them, or accepts none.
    if (changes.size === 0 || this.#suspects.stuck) throw refusal;
  }

  /**
   * Quarantines the services that the kernel named. Returns false if it named none, or an object that belongs to no
   * service.
   */
  #quarantineNamed(error: TableError): boolean {
    if (mayBeAny(error.faulty)) return false;
    const attributions = this.#ruleset.attribute(error.faulty, this.#unwritten);
    // The first fault may be the reason for all later ones.
    if (attributions[0]?.service === undefined) return false;
    const reasons = new Map<string, string>();
    for (const { service, what } of attributions) {
      if (service !== undefined && !reasons.has(service)) reasons.set(service, what);
    }
    const claims = new ChangedClaims(this.options.family, this.#unwrittenStates());
    // Process all of them before checking whether any had an effect.
    return [...reasons].map(([service, reason]) => this.#fallBack(service, reason, claims)).includes(true);
  }

  *#unwrittenStates(): Generator<readonly [service: string, state: ServiceState]> {
    for (const service of this.#unwritten.keys()) yield [service, this.#ruleset.state(service)];
  }

  async #forward(groups: readonly Group[]): Promise<void> {
    const timeSlice = new TimeSlice();
    for (const [service, change] of groups.flatMap((group) => [...group])) {
      this.#redo(service, change);
      if (timeSlice.spent) await timeSlice.yield();
    }
  }

  /**
   * Makes the change desired again. For a service updated in pieces the change is the piece, and its update continues
   * from the state after it.
   */
  #redo(service: string, { present, former }: Change): void {
    this.#unwritten.set(service, former);
    this.#ruleset.restore(service, present);
  }

  /**
   * Restores services that the kernel has not seen yet to the last state that it accepted. Returns these changes.
   * Services that are new to us but already in the kernel stay: those of an earlier run, and those of a partly rejected
   * first write.
   */
  async #goBack(): Promise<Map<string, Change>> {
    const timeSlice = new TimeSlice();
    const changes = new Map<string, Change>();
    for (const [service, former] of this.#unwritten) {
      const present = this.#ruleset.state(service);
      const isInKernel = former.length === 0 && present.length > 0 && this.#ruleset.isInKernel(service);
      if (!isInKernel || this.#quarantined.has(service)) {
        changes.set(service, { present, former });
        this.#ruleset.restore(service, former);
      }
      if (timeSlice.spent) await timeSlice.yield();
    }
    this.#unwritten.clear();
    // Objects that they share are removed with the last of them, and may be the cause of the refusal.
    this.#ruleset.collectUnused(this.options.clock.now(), 0);
    return changes;
  }

  /** Adds suspects that are related to a change to the same write, because an address may move between them. */
  #retryRelated(service: string, desired: readonly ServicePortView[]): void {
    if (!this.hasSuspects) return;
    const groups = this.#suspects.takeRelated(service, desired, this.#ruleset.state(service));
    for (const group of groups) for (const [other, change] of group) this.#redo(other, change);
  }

  /** Everything that was to be written is active. */
  written(): void {
    const adds = (service: string): boolean => this.#ruleset.state(service).length > 0;
    if (this.hasSuspects && [...this.#unwritten.keys()].some(adds)) this.#suspects.proved();
    const released = [...this.#quarantined.keys()].filter(
      (service) => this.#unwritten.has(service) && !this.#inPieces.has(service),
    );
    // Cleared at once, because there may be as many as there are services.
    this.#unwritten.clear();
    for (const service of released) this.#release(service);
  }

  /** Whether nothing about the service needs to be remembered, for example because it belongs to the other family. */
  #hasNothing(service: string): boolean {
    const isKnown = this.#unwritten.has(service) || this.#quarantined.has(service) || this.#suspects.has(service);
    return !isKnown && this.#ruleset.state(service).length === 0;
  }

  #release(service: string): void {
    this.#quarantined.delete(service);
    const { family, log, observers } = this.options;
    log.info({ family, ...serviceFields(service) }, "service released from quarantine");
    for (const observer of observers) observer.released?.({ family, service });
  }

  /**
   * Takes the service one step back. Returns false if there is no further step: the kernel rejects even its removal.
   */
  #fallBack(service: string, reason: string, claims: ChangedClaims): boolean {
    const fallback = claims.leftOf(service, this.#unwritten.get(service) ?? NOTHING);
    if (this.#ruleset.state(service).length === 0 && fallback.length === 0) return false;
    this.#ruleset.restore(service, fallback);
    this.#put(service, reason);
    return true;
  }

  /** Quarantines the service, which has its former state or none. */
  #put(service: string, reason: string, { isProved = false, isOneOfMany = false }: Partial<Quarantined> = {}): void {
    this.#unwritten.delete(service);
    this.#inPieces.delete(service);
    const { family, log, clock, observers } = this.options;
    const before = this.#quarantined.get(service);
    const backoff = before?.backoff ?? new Backoff({ firstMs: FIRST_RETRY_MS, longestMs: LONGEST_RETRY_MS });
    const waitMs = backoff.next();
    this.#quarantined.set(service, {
      reason,
      backoff,
      retryAt: clock.now() + waitMs,
      isProved: isProved || before?.isProved === true,
      isOneOfMany: isOneOfMany || before?.isOneOfMany === true,
    });
    const fields = { family, ...serviceFields(service), refused: reason, retryMs: waitMs };
    if (before !== undefined && before.reason === reason) {
      log.debug(fields, "service still refused by the kernel");
      return;
    }
    log.error(fields, "service quarantined; refused by the kernel");
    if (before !== undefined) return;
    for (const observer of observers) observer.quarantined?.({ family, service, reason });
  }

  /** The kept states of quarantined services must not serve addresses that another service is given. */
  #giveUpClaims(service: string, desired: readonly ServicePortView[]): void {
    if (this.#quarantined.size === 0) return;
    for (const other of this.#quarantined.keys()) {
      if (other === service || this.#unwritten.has(other) || this.#suspects.has(other)) continue;
      const kept = this.#ruleset.state(other);
      const left = withoutClaims(this.options.family, kept, desired);
      if (left !== kept) this.#ruleset.restore(other, left);
    }
  }
}

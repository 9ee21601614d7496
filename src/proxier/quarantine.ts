/**
 * Isolates failures: a service that the kernel refuses is quarantined, and the rest is written.
 *
 *   desired ──refused──► as it was when the kernel last took it ──refused──► nothing of it
 *      ▲                                 │                                       │
 *      └─────────────── retried: when it changes, and with backoff ──────────────┘
 *
 * The kernel keeps the service's former state: old endpoints are better than none. A port of it goes if another service has been given one of its
 * addresses meanwhile, since two states that serve one address contradict each other. A retry takes the service's present views, by the same way as a
 * change of it: a large one goes in pieces. After a restart nothing is known of how a service was, so a
 * service that is refused at the first write has nothing.
 *
 * If the kernel does not name the service at fault, all changes that it refused together go back to their former state, and are tried again, a few at
 * a time (suspects.ts). Each write brings new changes first, and then spends a little time on such tries.
 */
import { TimeSlice } from "../base/time-slice.js";
import { Backoff } from "../base/backoff.js";
import { reasonOf } from "../base/unknown.js";
import type { IpFamily } from "../base/ip.js";
import type { ServicePortView } from "../model/service-port-view.js";
import { serviceFields } from "../base/logger.js";
import type { SlottedPort } from "../model/balance/slot-assigner.js";
import type { FamilyRuleset, PieceOptions, ServiceState } from "../ruleset/ruleset.js";
import { type FaultyObject, TableError } from "../table/table-exports.js";
import { type Change, ChangedClaims, withoutClaims } from "./changed-claims.js";
import type { ProxierContext } from "./proxier-context.js";
import { type Group, Suspects } from "./suspects.js";

/** Wait before a quarantined service is retried although it did not change, ms: the first, and the longest. */
const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 300_000;
/** Transactions in a row that may name another service each time, before the next attempt is left to the usual pace. */
const MAX_ROUNDS = 16;
/** Time after the start of a write at which no other try begins, ms: changes that come meanwhile wait for the write. */
const TRIES_MS = 25;

const NOTHING: ServiceState = Object.freeze([]);

/** Refusals that depend on what was sent. */
const BY_CONTENT: ReadonlySet<string> = new Set(["refused", "too-large", "invalid"]);

interface Quarantined {
  reason: string;
  /** ms of the clock. */
  retryAt: number;
  readonly backoff: Backoff;
  /** Found while the kernel took other changes: refused again, it is at fault whatever the kernel takes then. */
  readonly isProved: boolean;
  /** Refused together with others: they are retried one by one, since not all of them may be at fault. */
  readonly isOneOfMany: boolean;
}

/** What is forbidden is so whatever is sent. */
function dependsOnContent({ code, faulty }: TableError): boolean {
  return BY_CONTENT.has(code) && !faulty.some(({ errno }) => errno === "EPERM");
}

/** A commit that fails as a whole is answered to its first message (nfnetlink_rcv_batch), whatever was at fault. */
function mayBeAny(faulty: readonly FaultyObject[]): boolean {
  const [first] = faulty;
  return faulty.length === 1 && first.position === 0 && first.key === undefined && first.text === undefined;
}

/**
 * The kernel refuses to remove something, and that is no element: no service is at fault. Trying them one by one would take services from the kernel that have
 * nothing to do with it.
 */
function isStructural(faulty: readonly FaultyObject[]): boolean {
  if (faulty.length === 0 || mayBeAny(faulty)) return false;
  const [{ kind, operation = "" }] = faulty;
  return kind !== "element" && /^(?:delete|flush) /.test(operation);
}

export interface QuarantineOptions extends ProxierContext {
  readonly family: IpFamily;
  readonly ruleset: FamilyRuleset;
}

export class Quarantine {
  readonly #options: QuarantineOptions;
  readonly #ruleset: FamilyRuleset;
  /** Services that the kernel has not seen yet as they are now, with what it took of them last. */
  readonly #unwritten = new Map<string, ServiceState>();
  readonly #quarantined = new Map<string, Quarantined>();
  /** Services that are being updated in pieces, none of which was refused. */
  readonly #inPieces = new Set<string>();
  readonly #suspects = new Suspects();

  constructor(options: QuarantineOptions) {
    this.#options = options;
    this.#ruleset = options.ruleset;
  }

  /** Services that are not in force as they are desired. */
  get services(): string[] {
    return [...new Set([...this.#waiting(), ...this.#suspects.services])];
  }

  /** Whether changes that the kernel refused together wait for another try. */
  get hasSuspects(): boolean {
    return this.#suspects.size > 0;
  }

  /** Ms until a quarantined service is due to be retried; undefined when there is none. */
  get nextRetryMs(): number | undefined {
    if (this.hasSuspects) return 0;
    const waiting = this.#waiting().map((service) => this.#quarantined.get(service)?.retryAt ?? 0);
    return waiting.length === 0 ? undefined : Math.max(0, Math.min(...waiting) - this.#options.clock.now());
  }

  /**
   * Quarantined services that are due: each is to be updated to its present views. A service that is not is due again later. Of those that were refused together
   * only the one that has waited longest.
   */
  takeDue(): string[] {
    const now = this.#options.clock.now();
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

  /** These views of the service are desired; one that is quarantined is retried. */
  update(service: string, desired: readonly ServicePortView[], prepared?: readonly SlottedPort[]): void {
    if (desired.length === 0 && this.#hasNothing(service)) return;
    this.#takeAlong(service, desired);
    this.#giveUpClaims(service, desired);
    const former = this.#unwritten.get(service) ?? this.#ruleset.state(service);
    this.#unwritten.set(service, former);
    try {
      this.#ruleset.update(service, desired, prepared);
    } catch (error) {
      // A state that cannot be expressed is quarantined as if the kernel had refused it. A large service takes long to be restored, and is retried again and again.
      if (this.#ruleset.state(service) !== former) this.#ruleset.restore(service, former);
      this.#put(service, reasonOf(error));
    }
  }

  /**
   * The same in pieces, which tell how many elements they were about; `write` may be called in between. Returns false if the service is quarantined: the kernel
   * refused a piece, say.
   */
  *updateInPieces(
    service: string,
    desired: readonly ServicePortView[],
    options: PieceOptions = {},
  ): Generator<number, boolean> {
    if (desired.length === 0 && this.#hasNothing(service)) return true;
    this.#takeAlong(service, desired);
    this.#giveUpClaims(service, desired);
    this.#inPieces.add(service);
    const before = this.#ruleset.state(service);
    try {
      let pieces = this.#ruleset.updateInPieces(service, desired, options);
      for (;;) {
        if (!this.#inPieces.has(service)) return false;
        // What has been written in between is what it can fall back to.
        if (!this.#unwritten.has(service)) this.#unwritten.set(service, [...this.#ruleset.state(service)]);
        const { done, value } = pieces.next();
        if (done !== true) yield value;
        else if (value) return true;
        // Something else has brought the service to another state: on from there.
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
   * Writes with `apply`, without what is refused. Throws what `apply` threw if no service in particular is at fault.
   * @param apply told whether it is to find out about suspects.
   */
  async write<Result>(apply: (isTry: boolean) => Promise<Result>): Promise<Result[]> {
    const { clock } = this.#options;
    const until = clock.now() + TRIES_MS;
    const results: Result[] = [];
    const refusal = await this.#attempt(() => apply(false), results);
    if (refusal !== undefined) {
      const changes = await this.#goBack();
      if (changes.size === 0) throw refusal;
      this.#suspects.add(changes);
      // Without any of them: if that is refused too, it is not about them.
      const another = await this.#attempt(() => apply(false), results);
      if (another !== undefined) throw another;
    }
    while (this.hasSuspects) {
      await this.#try(this.#suspects.next(), () => apply(true), results);
      if (clock.now() >= until) break;
    }
    return results;
  }

  /** Makes all suspects desired again: what follows writes everything. */
  async forwardSuspects(): Promise<void> {
    await this.#forward(this.#suspects.takeAll());
  }

  /** Writes, again and again without the services that the kernel names. Returns a refusal that names none. Throws what is not about services. */
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

  /** Writes these, which are suspects no longer. Throws if nothing can be told of them; then they are suspects again. */
  async #try<Result>(groups: readonly Group[], apply: () => Promise<Result>, results: Result[]): Promise<void> {
    await this.#forward(groups);
    let refusal: TableError | undefined;
    try {
      refusal = await this.#attempt(apply, results);
    } catch (error) {
      this.#suspects.add(await this.#goBack());
      throw error;
    }
    if (refusal === undefined) return this.#suspects.taken(groups.length);
    const changes = await this.#goBack();
    const wereProved = [...changes.keys()].every((service) => this.#quarantined.get(service)?.isProved === true);
    if (this.#suspects.refused(changes, groups.length, wereProved)) {
      const how = { isProved: this.#suspects.hasProof, isOneOfMany: changes.size > 1 };
      for (const service of changes.keys()) this.#put(service, refusal.message, how);
    }
    // The kernel has named all of them, or takes none.
    if (changes.size === 0 || this.#suspects.stuck) throw refusal;
  }

  /** Quarantines the services that the kernel named. False when it named none, or something that is no service's. */
  #quarantineNamed(error: TableError): boolean {
    if (mayBeAny(error.faulty)) return false;
    const attributions = this.#ruleset.attribute(error.faulty, this.#unwritten);
    // What comes first may be the reason for all that follows.
    if (attributions[0]?.service === undefined) return false;
    const reasons = new Map<string, string>();
    for (const { service, what } of attributions) {
      if (service !== undefined && !reasons.has(service)) reasons.set(service, what);
    }
    const claims = new ChangedClaims(this.#unwrittenStates());
    // All of them, and only then a look at whether that was any use.
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

  /** Makes the change desired again. For a service that is updated in pieces this is the piece: its update goes on from the state that the piece left. */
  #redo(service: string, { present, former }: Change): void {
    this.#unwritten.set(service, former);
    this.#ruleset.restore(service, present);
  }

  /**
   * Brings the services that the kernel has not seen yet to what it took of them last. Returns these changes. Services that are new to us, but not to the
   * kernel, stay: those of an earlier run, and of a first write that was refused in part.
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
    // What they shared goes with the last of them: it may be what is refused.
    this.#ruleset.collectUnused(this.#options.clock.now(), 0);
    return changes;
  }

  /** Suspects that a change has to do with are written along with it, as an address may pass between them. */
  #takeAlong(service: string, desired: readonly ServicePortView[]): void {
    if (!this.hasSuspects) return;
    const groups = this.#suspects.takeRelated(service, desired, this.#ruleset.state(service));
    for (const group of groups) for (const [other, change] of group) this.#redo(other, change);
  }

  /** Everything that was to be written is in force. */
  written(): void {
    const adds = (service: string): boolean => this.#ruleset.state(service).length > 0;
    if (this.hasSuspects && [...this.#unwritten.keys()].some(adds)) this.#suspects.proved();
    const released = [...this.#quarantined.keys()].filter(
      (service) => this.#unwritten.has(service) && !this.#inPieces.has(service),
    );
    // Not one by one: there may be as many as there are services.
    this.#unwritten.clear();
    for (const service of released) this.#release(service);
  }

  /** A service of the other family, say: there is nothing to remember of each of them. */
  #hasNothing(service: string): boolean {
    const isKnown = this.#unwritten.has(service) || this.#quarantined.has(service) || this.#suspects.has(service);
    return !isKnown && this.#ruleset.state(service).length === 0;
  }

  #release(service: string): void {
    this.#quarantined.delete(service);
    const { family, log, observers } = this.#options;
    log.info({ family, ...serviceFields(service) }, "service released from quarantine");
    for (const observer of observers) observer.released?.({ family, service });
  }

  /** One step back for the service. False when there is none: the kernel refuses even that it is gone. */
  #fallBack(service: string, reason: string, claims: ChangedClaims): boolean {
    const target = claims.leftOf(service, this.#unwritten.get(service) ?? NOTHING);
    if (this.#ruleset.state(service).length === 0 && target.length === 0) return false;
    this.#ruleset.restore(service, target);
    this.#put(service, reason);
    return true;
  }

  /** The service is as it was, or gone. */
  #put(service: string, reason: string, { isProved = false, isOneOfMany = false }: Partial<Quarantined> = {}): void {
    this.#unwritten.delete(service);
    this.#inPieces.delete(service);
    const { family, log, clock, observers } = this.#options;
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

  /** What is kept of quarantined services must not serve what another one is given. */
  #giveUpClaims(service: string, desired: readonly ServicePortView[]): void {
    if (this.#quarantined.size === 0) return;
    for (const other of this.#quarantined.keys()) {
      if (other === service || this.#unwritten.has(other) || this.#suspects.has(other)) continue;
      const kept = this.#ruleset.state(other);
      const left = withoutClaims(kept, desired);
      if (left !== kept) this.#ruleset.restore(other, left);
    }
  }
}

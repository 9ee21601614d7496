/**
 * Keeps the connection tracking table in line with the rules: after they are in, entries that the decision (decide.ts)
 * finds stale are deleted. A sync never waits for it. For a few changed destinations the kernel filters, one dump each;
 * for many there is one pass over the whole family, with a prefilter that keeps what is in order from JavaScript.
 *
 * Each pass is followed by another one over the same: a packet that found its endpoint in the old rules may enter the
 * table after the first one has been by.
 */
import { serviceProtocol } from "../../base/protocols.js";
import type { IpFamily } from "../../base/ip.js";
import type { ServiceTarget } from "../../model/service-port-view.js";
import type { Logger } from "../../base/logger.js";
import { TimeSlice } from "../../base/time-slice.js";
import { decide, type DeleteReason } from "./decide.js";
import type { Claim, FormerTargets } from "./former-targets.js";
import { ServiceKnowledge, type TargetSource } from "./service-knowledge.js";
import { CoalescingWorker } from "./coalescing-worker.js";
import { filtersOf, type GoneEndpoint, mergeScope, newScope, repeatScope, type Scope, scopeOf } from "./scope.js";
import { isReconciled, PrefilterBuilder } from "./prefilter.js";
import type { ConntrackEntry, ConntrackFilter, ConntrackPrefilter, ConntrackTable } from "../table/conntrack-table.js";

/** few: kernel-filtered dumps of the destinations that changed. many: one dump of the whole family. */
export type Mode = "few" | "many";

/** What one pass over one family came to. */
export interface ReconcileReport {
  readonly family: IpFamily;
  readonly mode: Mode;
  readonly ms: number;
  /** Entries that were looked at here. */
  readonly entries: number;
  readonly deleted: number;
  /** Of the deleted ones, how many for each reason. */
  readonly reasons: Readonly<Partial<Record<DeleteReason, number>>>;
}

export interface ReconcilerOptions {
  readonly table: Pick<ConntrackTable, "dump" | "deleteAll">;
  readonly model: TargetSource;
  readonly former: FormerTargets;
  /** Where node ports answer: canonical addresses of this node. Asked before each pass. */
  readonly nodePortAddresses: (family: IpFamily) => Promise<Iterable<string>>;
  readonly log: Logger;
  readonly onPass?: (report: ReconcileReport) => void;
  /** Each entry that was deleted, as the kernel answered. Must not throw. */
  readonly onDeleted?: (entry: ConntrackEntry, reason: DeleteReason) => void;
  /** A service that is looked at asks for resets of its connections to endpoints that are gone. */
  readonly onResetsAsked?: (service: string) => void;
  /** ms, monotonic. Default performance.now. */
  readonly now?: () => number;
  /** Between a pass and the one after it, ms. Default SETTLE_MS. */
  readonly settleMs?: number;
  /** Pause after a pass, in times of what it took. Default PAUSE_FACTOR. */
  readonly pauseFactor?: number;
  /** First wait after a failure, ms. Default FIRST_RETRY_MS. */
  readonly firstRetryMs?: number;
}

/**
 * Up to so many filtered dumps, a full pass for more. They are read in turns, on one thread. A filtered dump walks the whole table in
 * the kernel and prints next to nothing: of 200,000 entries a seventh of the time of a full pass, of 10,000 half of it. And a
 * full pass leaves the core to others every 0.2 ms, a filtered dump at its end.
 */
const MOST_FILTERED_DUMPS = 4;
/** A packet is under way for microseconds, or as long as some queue holds it. */
const SETTLE_MS = 100;
/** Passes that follow a change, each after twice the time: as many as it takes to forget former destinations for sure. */
const MOST_REPEATS = 3;
/**
 * A dump walks the kernel's whole hash table, however few entries it is to show (10 ms of a processor for 262,144 buckets): a
 * worker that always has something to do may take a third of one. Where the processors are busy with other work a pass takes longer, and a
 * client whose endpoint went must not wait for that too.
 */
const PAUSE_FACTOR = 2;
const MAX_PAUSE_MS = 50;
const FIRST_RETRY_MS = 100;
const MAX_RETRY_MS = 30_000;
/** Work on a long list in slices of this length, ms: a sync that is due must not be kept waiting. */
const SLICE_MS = 1;

/** The table changed under a dump: what it did not show is looked for again. */
class InterruptedDump extends Error {
  override readonly name = "InterruptedDump";
}

/** Resolves when all are; rejects, when all are over, with the first failure. */
async function allDone(work: readonly Promise<void>[]): Promise<void> {
  for (const result of await Promise.allSettled(work)) if (result.status === "rejected") throw result.reason;
}

interface Tally {
  entries: number;
  deleted: number;
  readonly reasons: Partial<Record<DeleteReason, number>>;
}

export class Reconciler {
  readonly #options: ReconcilerOptions;
  readonly #now: () => number;
  readonly #workers: Readonly<Record<IpFamily, Readonly<Record<Mode, CoalescingWorker<Scope>>>>>;
  /** With what tells that the follow-up has begun, or will not. */
  readonly #followUps = new Map<NodeJS.Timeout, PromiseWithResolvers<void>>();
  #stopped = false;

  constructor(options: ReconcilerOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    const retries = {
      merge: mergeScope,
      firstRetryMs: options.firstRetryMs ?? FIRST_RETRY_MS,
      maxRetryMs: MAX_RETRY_MS,
      pauseFactor: options.pauseFactor ?? PAUSE_FACTOR,
      maxPauseMs: MAX_PAUSE_MS,
      onFailure: (error: unknown, failures: number, retryMs: number) => this.#failed(error, failures, retryMs),
    };
    // A worker each: one changed VIP must not wait for a pass over a million entries, nor for the other family.
    const workers = (family: IpFamily) => ({
      few: new CoalescingWorker<Scope>((scope) => this.#passFew(family, scope), retries),
      many: new CoalescingWorker<Scope>((scope) => this.#passMany(family, scope), retries),
    });
    this.#workers = { ip: workers("ip"), ip6: workers("ip6") };
  }

  /**
   * The rules of a family are in for these services, and no more for these claims that no service has. A service comes with the
   * endpoints that went, when nothing else of it changed; see Scope. Returns at once.
   */
  request(
    family: IpFamily,
    services: Iterable<readonly [service: string, gone: readonly GoneEndpoint[] | undefined]>,
    claims: Iterable<Claim>,
  ): void {
    const scope = scopeOf(services, claims);
    if (scope.services.size > 0 || scope.claims.size > 0) this.#workers[family].few.add(scope);
  }

  /** The rules of a family are in; every entry of it is looked at. Returns at once. */
  requestAll(family: IpFamily): void {
    this.#workers[family].many.add({ ...newScope(), all: true });
  }

  /** Resolves when no pass is running or waiting, but for follow-ups and retries. */
  async idle(): Promise<void> {
    for (const worker of this.#allWorkers()) await worker.idle();
  }

  /** Resolves when nothing is left to do, follow-ups and retries included; as long as a pass fails, it does not. */
  async settled(): Promise<void> {
    for (;;) {
      await this.idle();
      const followUps = Array.from(this.#followUps.values(), ({ promise }) => promise);
      const waiting = [...followUps, ...this.#allWorkers().flatMap(({ retry }) => retry ?? [])];
      if (waiting.length === 0) return;
      await Promise.race(waiting);
    }
  }

  /** Ends for good; resolves when the pass that is under way is done. */
  async stop(): Promise<void> {
    this.#stopped = true;
    for (const [timer, { resolve }] of this.#followUps) {
      clearTimeout(timer);
      resolve();
    }
    this.#followUps.clear();
    await Promise.all(this.#allWorkers().map((worker) => worker.stop()));
  }

  #allWorkers(): CoalescingWorker<Scope>[] {
    return Object.values(this.#workers).flatMap(({ few, many }) => [few, many]);
  }

  async #passFew(family: IpFamily, scope: Scope): Promise<boolean> {
    const known = await this.#knowledge(family);
    const filters = filtersOf(scope, known, MOST_FILTERED_DUMPS);
    if (filters === undefined) {
      this.#workers[family].many.add(scope);
      return false;
    }
    for (const service of scope.services.keys())
      for (const target of known.targetsOf(service)) if (this.#tellsResets(target)) break;
    if (filters.length === 0) return false;
    const started = this.#now();
    const tally: Tally = { entries: 0, deleted: 0, reasons: {} };
    await allDone(filters.map((filter) => this.#dump(filter, known, tally)));
    this.#finish(family, "few", scope, started, tally);
    return true;
  }

  async #passMany(family: IpFamily, scope: Scope): Promise<boolean> {
    const known = await this.#knowledge(family);
    const started = this.#now();
    const prefilter = new PrefilterBuilder(family, known.prefilterAddresses);
    await this.#fillPrefilter(prefilter, family, scope);
    const tally: Tally = { entries: 0, deleted: 0, reasons: {} };
    if (!prefilter.empty) {
      const { onlyProtocol } = prefilter;
      const filter = { family, ...(onlyProtocol === undefined ? {} : { protocol: onlyProtocol }) };
      await this.#dump(filter, known, tally, prefilter.build());
    }
    this.#finish(family, "many", scope, started, tally);
    return !prefilter.empty;
  }

  async #knowledge(family: IpFamily): Promise<ServiceKnowledge> {
    const { model, former, nodePortAddresses } = this.#options;
    return new ServiceKnowledge(model, former, family, await nodePortAddresses(family));
  }

  async #fillPrefilter(prefilter: PrefilterBuilder, family: IpFamily, scope: Scope): Promise<void> {
    const { model, former } = this.#options;
    const timeSlice = new TimeSlice(SLICE_MS);
    // What the first write of all services has left to do in this turn is long enough.
    if (scope.all) await timeSlice.yield();
    // The model may change between two slices; what changes is reconciled again after its own rules are in.
    for (const service of scope.all ? model.services() : scope.services.keys()) {
      let told = false;
      for (const target of model.targets(family, service)) {
        prefilter.addTarget(target);
        told ||= this.#tellsResets(target);
        if (timeSlice.spent) await timeSlice.yield();
      }
    }
    for (const claim of scope.all ? former.claims(family) : scope.claims.values()) {
      // Where a service has it again, what is in order is for the service to say.
      const { address, protocol, port } = claim;
      if (former.get(claim) !== undefined && model.ownerOf(family, address, protocol, port) === undefined) {
        prefilter.addFormer(claim);
      }
      if (timeSlice.spent) await timeSlice.yield();
    }
  }

  /** Whether the service asks for resets, which is said then. */
  #tellsResets({ resetRemovedEndpoints, service }: ServiceTarget): boolean {
    if (resetRemovedEndpoints) this.#options.onResetsAsked?.(service);
    return resetRemovedEndpoints;
  }

  async #dump(
    filter: ConntrackFilter,
    known: ServiceKnowledge,
    tally: Tally,
    prefilter?: ConntrackPrefilter,
  ): Promise<void> {
    const { table } = this.#options;
    const { interrupted } = await table.dump(
      filter,
      async (entries) => {
        tally.entries += entries.length;
        await this.#delete(entries, known, tally);
      },
      prefilter,
    );
    if (interrupted) throw new InterruptedDump("the table was changed under the dump");
  }

  async #delete(entries: readonly ConntrackEntry[], known: ServiceKnowledge, tally: Tally): Promise<void> {
    const stale: ConntrackEntry[] = [];
    const reasons: DeleteReason[] = [];
    for (const entry of entries) {
      const reason = this.#whyStale(entry, known);
      if (reason === undefined) continue;
      stale.push(entry);
      reasons.push(reason);
    }
    if (stale.length === 0) return;
    const { table, onDeleted } = this.#options;
    const { deleted, absentAt } = await table.deleteAll(stale);
    const absent = new Set(absentAt);
    tally.deleted += deleted;
    for (const [at, reason] of reasons.entries()) {
      if (absent.has(at)) continue;
      tally.reasons[reason] = (tally.reasons[reason] ?? 0) + 1;
      onDeleted?.(stale[at], reason);
    }
  }

  /** Undefined: it stays. */
  #whyStale(entry: ConntrackEntry, known: ServiceKnowledge): DeleteReason | undefined {
    const decision = decide(entry, known);
    const { reason } = decision;
    if (reason === "service-deleted" || reason === "address-changed") {
      this.#meetFormer(entry);
    }
    return decision.action === "delete" ? decision.reason : undefined;
  }

  #meetFormer({ family, original, reply }: ConntrackEntry): void {
    const protocol = serviceProtocol(original.protocol);
    if (protocol === undefined) return;
    const { former } = this.#options;
    const port = original.destinationPort;
    const endpoint = `${reply.source} ${reply.sourcePort}`;
    former.meet({ family, address: original.destination, protocol, port }, endpoint);
    former.meet({ family, address: "", protocol, port }, endpoint);
  }

  #finish(family: IpFamily, mode: Mode, scope: Scope, started: number, tally: Tally): void {
    const { former, log, onPass, settleMs = SETTLE_MS } = this.#options;
    const covered = (scope.all ? former.claims(family) : [...scope.claims.values()]).filter(({ protocol }) =>
      isReconciled(protocol, false),
    );
    former.passed(covered);
    const report: ReconcileReport = { family, mode, ms: this.#now() - started, ...tally };
    log.debug({ ...report }, "connection tracking reconciled");
    if (tally.deleted > 0)
      log.info({ family, deleted: tally.deleted, reasons: tally.reasons }, "stale entries deleted");
    onPass?.(report);
    const again = scope.repeats === 0 || covered.some((claim) => former.get(claim) !== undefined);
    if (this.#stopped || !again || scope.repeats >= MOST_REPEATS) return;
    const begun = Promise.withResolvers<void>();
    const timer = setTimeout(
      () => {
        this.#followUps.delete(timer);
        this.#workers[family][mode].add(repeatScope(scope));
        begun.resolve();
      },
      settleMs * 2 ** scope.repeats,
    );
    this.#followUps.set(timer, begun);
  }

  #failed(error: unknown, failures: number, retryMs: number): void {
    const { log } = this.#options;
    if (error instanceof InterruptedDump) log.debug({ retryMs }, "dump interrupted; retrying");
    else if (failures === 1) log.error({ err: error, retryMs }, "reconciling connection tracking failed; retrying");
    else log.warn({ err: error, failures, retryMs }, "reconciling connection tracking failed; retrying");
  }
}

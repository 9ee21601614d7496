/**
 * Keeps the connection tracking table in line with the rules: after the rules are committed, it deletes the entries
 * that stale-entries.ts finds stale. A sync never waits for it. For a few changed destinations, it uses one dump each,
 * filtered by the kernel. For many, it makes one pass over the whole family; a prefilter keeps entries that are in
 * order out of JavaScript.
 *
 * Each pass is repeated later, because a packet that took its endpoint from the old rules may create an entry after the
 * first pass.
 */
import type { IpFamily } from "../../base/ip.js";
import type { ServiceTarget } from "../../model/service-port-view.js";
import type { Logger } from "../../base/logger.js";
import { yieldToEventLoop } from "../../base/time-slice.js";
import { decide, type DeleteReason } from "./stale-entries.js";
import type { ServiceAddress } from "../../model/service-address.js";
import type { FormerTargets } from "./former-targets.js";
import { ServiceKnowledge, type TargetSource } from "./service-knowledge.js";
import { CoalescingWorker } from "./coalescing-worker.js";
import { filtersOf, mergeScope, type Scope, scopeOf, wholeScope } from "./scope.js";
import { isReconciled, PrefilterBuilder } from "./prefilter.js";
import type {
  ConntrackEntry,
  ConntrackFilter,
  ConntrackPrefilter,
  ConntrackTable,
} from "../../nft/conntrack/conntrack-table.js";

/** few: kernel-filtered dumps of the destinations that changed. many: one dump of the whole family. */
type Mode = "few" | "many";

/** The result of one pass over one family. */
export interface ReconcileReport {
  readonly family: IpFamily;
  readonly mode: Mode;
  readonly ms: number;
  /** Entries examined in JavaScript. */
  readonly entries: number;
  readonly deleted: number;
  /** Number of deleted entries by reason. */
  readonly reasons: Readonly<Partial<Record<DeleteReason, number>>>;
}

export interface ReconcilerOptions {
  readonly table: Pick<ConntrackTable, "dump" | "deleteAll">;
  readonly model: TargetSource;
  readonly former: FormerTargets;
  /** Canonical addresses of this node at which node ports are served. Called before each pass. */
  readonly nodePortAddresses: (family: IpFamily) => Promise<Iterable<string>>;
  readonly log: Logger;
  readonly onPass?: (report: ReconcileReport) => void;
  /** Called for each entry that the kernel confirmed as deleted. Must not throw. */
  readonly onDeleted?: (entry: ConntrackEntry, reason: DeleteReason) => void;
  /** Called if an examined service asks for resets of its connections to endpoints that are gone. */
  readonly onResetsAsked?: (service: string) => void;
  /** Time between a pass and its repetition, ms. Default SETTLE_MS. */
  readonly settleMs?: number;
  /** First wait after a failure, ms. Default FIRST_RETRY_MS. */
  readonly firstRetryMs?: number;
}

/**
 * Maximum number of filtered dumps; for more, one full pass is made. The dumps take turns on one thread. A filtered
 * dump walks the whole table in the kernel but returns next to nothing. It takes a seventh of the time of a full pass
 * for 200,000 entries, and half for 10,000. A full pass yields its core every 0.2 ms, a filtered dump only at its end.
 */
const MOST_FILTERED_DUMPS = 4;
/** A packet is in flight for microseconds, or for as long as a queue holds it. */
const SETTLE_MS = 100;
/**
 * Maximum number of repetitions after a change, each after twice the previous wait. This is enough to surely forget
 * former destinations.
 */
const MOST_REPEATS = 3;
/**
 * A dump walks the kernel's whole hash table, even to show few entries (10 ms of CPU for 262,144 buckets). This factor
 * lets a worker that is never idle use a third of a processor. If the processors are busy, a pass takes longer, but a
 * client whose endpoint is gone must not also wait for a longer pause. MAX_PAUSE_MS limits it.
 */
const PAUSE_FACTOR = 2;
const MAX_PAUSE_MS = 50;
const FIRST_RETRY_MS = 100;
const MAX_RETRY_MS = 30_000;

/** The table changed during a dump, so entries may be missing and the dump is repeated. */
class InterruptedDump extends Error {
  override readonly name = "InterruptedDump";
}

/** Resolves when all succeed. If any fails, rejects with the first failure after all have ended. */
async function allDone(work: readonly Promise<void>[]): Promise<void> {
  for (const result of await Promise.allSettled(work)) if (result.status === "rejected") throw result.reason;
}

interface Tally {
  entries: number;
  deleted: number;
  readonly reasons: Partial<Record<DeleteReason, number>>;
}

export class Reconciler {
  readonly #workers: Readonly<Record<IpFamily, Readonly<Record<Mode, CoalescingWorker<Scope>>>>>;
  /** Timer → promise that resolves when the repetition has started or was cancelled. */
  readonly #followUps = new Map<NodeJS.Timeout, PromiseWithResolvers<void>>();
  #stopped = false;

  constructor(private readonly options: ReconcilerOptions) {
    const retries = {
      merge: mergeScope,
      firstRetryMs: options.firstRetryMs ?? FIRST_RETRY_MS,
      maxRetryMs: MAX_RETRY_MS,
      pauseFactor: PAUSE_FACTOR,
      maxPauseMs: MAX_PAUSE_MS,
      onFailure: (error: unknown, failures: number, retryMs: number) => this.#failed(error, failures, retryMs),
    };
    // Each has its own worker, so that a changed VIP waits neither for a pass over a million entries nor for the other
    // family.
    const workers = (family: IpFamily) => ({
      few: new CoalescingWorker<Scope>((scope) => this.#passFew(family, scope), retries),
      many: new CoalescingWorker<Scope>((scope) => this.#passMany(family, scope), retries),
    });
    this.#workers = { ip: workers("ip"), ip6: workers("ip6") };
  }

  /**
   * The rules of a family are committed for these services, and removed for these claims, which no service has. Returns
   * at once.
   */
  request(family: IpFamily, services: Iterable<string>, claims: readonly ServiceAddress[]): void {
    const scope = scopeOf(services, claims);
    if (scope.services.size > 0 || scope.claims.size > 0) this.#workers[family].few.add(scope);
  }

  /** The rules of a family are committed, so examine all its entries. Returns at once. */
  requestAll(family: IpFamily): void {
    this.#workers[family].many.add(wholeScope());
  }

  /** Resolves when no pass is running or waiting, except for repetitions and retries. */
  async idle(): Promise<void> {
    // One worker may begin while another is awaited.
    const busy = () => this.#allWorkers().find((worker) => worker.busy);
    for (let worker = busy(); worker !== undefined; worker = busy()) await worker.idle();
  }

  /**
   * Resolves when nothing is left to do, including repetitions and retries. Does not resolve while a pass keeps
   * failing.
   */
  async settled(): Promise<void> {
    for (;;) {
      await this.idle();
      const followUps = Array.from(this.#followUps.values(), ({ promise }) => promise);
      const waiting = [...followUps, ...this.#allWorkers().flatMap(({ retry }) => retry ?? [])];
      if (waiting.length === 0) return;
      await Promise.race(waiting);
    }
  }

  /** Stops for good. Resolves when the current pass is complete. */
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
    for (const service of scope.services)
      for (const target of known.targetsOf(service)) if (this.#tellsResets(target)) break;
    if (filters.length === 0) return false;
    const started = performance.now();
    const tally: Tally = { entries: 0, deleted: 0, reasons: {} };
    await allDone(filters.map((filter) => this.#dump(filter, known, tally)));
    this.#finish(family, "few", scope, started, tally);
    return true;
  }

  async #passMany(family: IpFamily, scope: Scope): Promise<boolean> {
    const known = await this.#knowledge(family);
    const started = performance.now();
    const prefilter = new PrefilterBuilder(family, known.prefilterAddresses);
    const { model, former } = this.options;
    // Yield first, because the first write of all services already takes long in this turn.
    if (scope.all) await yieldToEventLoop();
    let told = "";
    await prefilter.addAll(
      { model, former },
      scope.all ? model.services() : scope.services,
      scope.all ? former.claims(family) : scope.claims.values(),
      (target) => {
        if (target.service !== told && this.#tellsResets(target)) told = target.service;
      },
    );
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
    const { model, former, nodePortAddresses } = this.options;
    return new ServiceKnowledge(model, former, family, await nodePortAddresses(family));
  }

  /** Reports the service if it asks for resets. Returns whether it does. */
  #tellsResets({ resetRemovedEndpoints, service }: ServiceTarget): boolean {
    if (resetRemovedEndpoints) this.options.onResetsAsked?.(service);
    return resetRemovedEndpoints;
  }

  async #dump(
    filter: ConntrackFilter,
    known: ServiceKnowledge,
    tally: Tally,
    prefilter?: ConntrackPrefilter,
  ): Promise<void> {
    const { table } = this.options;
    const { interrupted } = await table.dump(
      filter,
      async (entries) => {
        tally.entries += entries.length;
        await this.#delete(entries, known, tally);
      },
      prefilter,
    );
    if (interrupted) throw new InterruptedDump("the table changed during the dump");
  }

  async #delete(entries: readonly ConntrackEntry[], known: ServiceKnowledge, tally: Tally): Promise<void> {
    const { table, former, onDeleted } = this.options;
    const stale: ConntrackEntry[] = [];
    const reasons: DeleteReason[] = [];
    for (const entry of entries) {
      const { action, reason } = decide(entry, known);
      if (reason === "service-deleted" || reason === "address-changed") former.meet(entry);
      if (action === "keep") continue;
      stale.push(entry);
      reasons.push(reason);
    }
    if (stale.length === 0) return;
    const { deleted, absentAt } = await table.deleteAll(stale);
    const absent = new Set(absentAt);
    tally.deleted += deleted;
    for (const [at, reason] of reasons.entries()) {
      if (absent.has(at)) continue;
      tally.reasons[reason] = (tally.reasons[reason] ?? 0) + 1;
      onDeleted?.(stale[at], reason);
    }
  }

  #finish(family: IpFamily, mode: Mode, scope: Scope, started: number, tally: Tally): void {
    const { former, log, onPass, settleMs = SETTLE_MS } = this.options;
    const covered = (scope.all ? former.claims(family) : [...scope.claims.values()]).filter(({ protocol }) =>
      isReconciled(protocol, false),
    );
    former.passed(covered);
    const report: ReconcileReport = { family, mode, ms: performance.now() - started, ...tally };
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
        this.#workers[family][mode].add({ ...scope, repeats: scope.repeats + 1 });
        begun.resolve();
      },
      settleMs * 2 ** scope.repeats,
    );
    this.#followUps.set(timer, begun);
  }

  #failed(error: unknown, failures: number, retryMs: number): void {
    const { log } = this.options;
    if (error instanceof InterruptedDump) log.debug({ retryMs }, "dump interrupted; retrying");
    else if (failures === 1) log.error({ err: error, retryMs }, "reconciling connection tracking failed; retrying");
    else log.warn({ err: error, failures, retryMs }, "reconciling connection tracking failed; retrying");
  }
}

import type { Kernel } from "../netlink/kernel.js";
import type { IpFamily } from "../base/ip.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { SlottedPort } from "../model/balance/slot-assigner.js";
import type { ServiceClaim } from "../ruleset/keys.js";
import type { PortCounts } from "../ruleset/connection-counts.js";
import { FamilyRuleset, type PieceOptions, type RulesetOptions } from "../ruleset/ruleset.js";
import { FORMER_SERVICE_MAPS, TABLE_COMMENT, TABLE_NAME } from "../ruleset/names.js";
import type { ProxierContext } from "./proxier-context.js";
import { servedClaims } from "./served-claims.js";
import {
  type ApplyResult,
  describeRefusal,
  joinResults,
  probeRuleFeatures,
  type RuleFeatures,
  Table,
  TableError,
} from "../table/table-exports.js";
import type { Contention } from "./contention.js";
import { Quarantine } from "./quarantine.js";
import { LastResort } from "./last-resort.js";
import { OwnerWait } from "./owner-wait.js";
import { FamilyRepair } from "./repair.js";

/** Outcome of one write of one family. */
export type FamilyOutcome =
  | {
      readonly ok: true;
      readonly result: ApplyResult;
      /** Services that are not in force as they are desired, because the kernel refuses them. */
      readonly quarantined: readonly string[];
      /** The table has drifted, and its repair waits. */
      readonly repairPending: boolean;
    }
  | {
      readonly ok: false;
      readonly error: unknown;
      /** Until it may go better, ms, where that is known. */
      readonly againMs?: number;
      /** Another program owns the table: that was the answer to an attempt, or it is not time for the next one. */
      readonly owned?: "tried" | "waiting";
      /** The kernel refuses to change the table: it is written from scratch after a few more tries. */
      readonly rebuildPending?: boolean;
    };

/** Of what was refused, this much is logged. */
const MAX_REFUSED = 5;

export interface FamilyOptions extends ProxierContext {
  readonly kernel: Kernel;
  /** No other process may change the table while we run. */
  readonly ownTable: boolean;
  readonly pieceElements?: number;
  readonly contention: Contention;
  /** See FamilyRepairOptions. */
  readonly cpuMs?: () => number;
  /** nftables.syncPeriod, ms. */
  readonly syncPeriodMs: number;
  /** Asks for a write, now. */
  readonly request: () => void;
}

/** One family's table and ruleset. The two families never mix: one that fails leaves the other alone. */
export class FamilyProxier {
  readonly family: IpFamily;
  readonly table: Table;
  readonly repair: FamilyRepair;
  readonly owner: OwnerWait;
  readonly #kernel: Kernel;
  readonly #context: ProxierContext;
  readonly #lastResort: LastResort;
  #services: { readonly ruleset: FamilyRuleset; readonly quarantine: Quarantine } | undefined;
  #options: RulesetOptions | undefined;
  /** Chains that the kernel does not let go, as they were last said. */
  #busy: ReadonlySet<string> = new Set();
  #features: Promise<RuleFeatures | undefined> | undefined;
  /** What was served before the first write by maps that we do not have. */
  #former: readonly ServiceClaim[] = [];

  constructor(family: IpFamily, options: FamilyOptions) {
    const { kernel, clock, log, observers, ownTable, pieceElements } = options;
    this.family = family;
    this.#kernel = kernel;
    this.#context = { log, clock, observers };
    this.table = new Table(kernel, {
      family,
      name: TABLE_NAME,
      comment: TABLE_COMMENT,
      clock,
      own: ownTable,
      pieceElements,
    });
    this.repair = new FamilyRepair(family, this.table, options);
    this.#lastResort = new LastResort(clock);
    this.owner = new OwnerWait(family, this.table, options);
  }

  /** True once options are known: nothing can be desired before. */
  get ready(): boolean {
    return this.#services !== undefined;
  }

  /**
   * What the kernel takes of what the rules would use; of a rule that it does not take it would refuse the whole table. Probed
   * once; undefined when the probe failed or told nothing, and the next call is to make it again. Never throws.
   */
  async features(): Promise<RuleFeatures | undefined> {
    const features = await (this.#features ??= this.#probe());
    if (features?.rejectPrerouting === undefined) this.#features = undefined;
    return features;
  }

  async #probe(): Promise<RuleFeatures | undefined> {
    try {
      return await probeRuleFeatures(this.#kernel, this.family);
    } catch (error) {
      this.#context.log.debug(
        { family: this.family, err: error },
        "probing the kernel failed; retrying with the next write",
      );
      return undefined;
    }
  }

  /** Node ports that answer on loopback, each with its protocol: those with an endpoint. */
  get localhostNodePorts(): number {
    return this.#services?.ruleset.localhostNodePorts ?? 0;
  }

  /** What the service's ports have counted, as of the last `table.readCounters()`; by port; undefined: nothing is counted. */
  connections(service: string): PortCounts {
    return this.#services?.ruleset.connections(service) ?? (() => undefined);
  }

  /** Takes the options that hold from now on. */
  setOptions(options: RulesetOptions): void {
    if (this.#options !== undefined && JSON.stringify(this.#options) === JSON.stringify(options)) return;
    this.#options = options;
    if (this.#services !== undefined) return this.#services.ruleset.setOptions(options);
    const ruleset = new FamilyRuleset(this.table, this.family, options);
    const quarantine = new Quarantine({ ...this.#context, family: this.family, ruleset });
    this.#services = { ruleset, quarantine };
  }

  setServiceCIDRs(cidrs: readonly string[]): void {
    this.#required().ruleset.setServiceCIDRs(cidrs);
  }

  /** Those that the kernel's table has stay, be they an earlier run's. */
  keepServiceCIDRs(): void {
    this.#required().ruleset.keepServiceCIDRs();
  }

  /** Does ahead what `update` of these views would hold up everything else for; undefined: nothing of the kind. */
  prepare(service: string, views: readonly ServicePortView[]): Promise<readonly SlottedPort[]> | undefined {
    return this.#required().ruleset.prepare(service, views);
  }

  update(service: string, views: readonly ServicePortView[], prepared?: readonly SlottedPort[]): void {
    this.#required().quarantine.update(service, views, prepared);
  }

  /** See Quarantine.updateInPieces. */
  updateInPieces(
    service: string,
    views: readonly ServicePortView[],
    options?: PieceOptions,
  ): Generator<number, boolean> {
    return this.#required().quarantine.updateInPieces(service, views, options);
  }

  /** See Quarantine.hasSuspects. */
  get hasSuspects(): boolean {
    return this.#services?.quarantine.hasSuspects ?? false;
  }

  /** See Quarantine.takeDue. */
  takeDue(): string[] {
    return this.#required().quarantine.takeDue();
  }

  /** About how many elements the service has in the desired table. */
  sizeOf(service: string): number {
    return this.#required().ruleset.sizeOf(service);
  }

  /** The views that the service has in the desired table. */
  *viewsOf(service: string): Generator<ServicePortView, void> {
    for (const { view } of this.#required().ruleset.state(service)) yield view;
  }

  /** Reads the kernel's table, so that what is already right is known before anything is desired. */
  async load(): Promise<void> {
    await this.table.load();
    this.#former = await servedClaims(this.#kernel, this.family, new Set(FORMER_SERVICE_MAPS));
  }

  /** What the kernel's table served when it was loaded, but for what services of ours have in this layout. To be asked once. */
  leftoverClaims(): readonly ServiceClaim[] {
    const former = this.#former;
    this.#former = [];
    return [...former, ...this.#required().ruleset.leftoverClaims()];
  }

  /** Writes what differs, without services that the kernel refuses. Never throws. */
  async write(now: number): Promise<FamilyOutcome> {
    const { ruleset, quarantine } = this.#required();
    const { waiting } = this.owner;
    if (waiting !== undefined) return { ok: false, ...waiting, owned: "waiting" };
    try {
      ruleset.updateSpares();
      ruleset.collectUnused(now);
      const results = await quarantine.write((isTry) => this.#apply(isTry));
      return this.#written(results);
    } catch (error) {
      if (error instanceof TableError && error.owner !== undefined) return this.#refusedForOwner(error);
      this.owner.over();
      const inMs = error instanceof TableError ? this.#lastResort.refused(error) : undefined;
      if (error instanceof TableError && inMs === 0) return this.#rebuild(error);
      this.#report(error);
      const { pendingMs } = this.repair;
      const againMs = pendingMs === undefined || pendingMs === 0 ? {} : { againMs: pendingMs };
      return { ok: false, error, ...againMs, ...(inMs === undefined ? {} : { rebuildPending: true }) };
    }
  }

  #written(results: readonly ApplyResult[]): FamilyOutcome {
    const { quarantine } = this.#required();
    this.owner.over();
    this.#lastResort.over();
    const result = results.reduce(joinResults);
    this.#reportBusy(result.busy ?? []);
    const waits = [result.applyAgainMs, this.repair.pendingMs, quarantine.nextRetryMs].filter((ms) => ms !== undefined);
    const againMs = waits.length === 0 ? {} : { applyAgainMs: Math.min(...waits) };
    return {
      ok: true,
      result: { ...result, ...againMs },
      quarantined: quarantine.services,
      repairPending: this.table.invalidated,
    };
  }

  /** Writes the table from scratch; `cause`: the refusal that leaves nothing else to try. */
  async #rebuild(cause: TableError): Promise<FamilyOutcome> {
    const { family } = this;
    const { quarantine } = this.#required();
    const start = this.repair.begin();
    const refused = cause.faulty.slice(0, MAX_REFUSED).map(describeRefusal);
    const { refusals } = this.#lastResort;
    try {
      await quarantine.forwardSuspects();
      const result = await this.table.apply({ rebuild: true });
      const ms = this.#context.clock.now() - start.at;
      quarantine.written();
      this.#context.log.warn(
        { family, refused, refusals, operations: result.total, ms: Math.round(ms) },
        "table deleted and written from scratch; the kernel refused to change it",
      );
      for (const observer of this.#context.observers) observer.rebuilt?.({ family, ok: true, refused });
      return this.#written([result]);
    } catch (error) {
      const retryMs = this.#lastResort.failed();
      this.#context.log.error(
        { family, err: error, refused, refusals, retryMs },
        "writing the table from scratch failed",
      );
      for (const observer of this.#context.observers) observer.rebuilt?.({ family, ok: false, refused });
      return { ok: false, error, againMs: retryMs };
    } finally {
      this.repair.spent(start);
    }
  }

  #refusedForOwner(error: TableError): FamilyOutcome {
    if (this.owner.refused(error)) this.#report(error);
    else this.#context.log.debug({ family: this.family, err: error }, "table still owned by another program");
    const againMs = this.owner.waiting?.againMs;
    return { ok: false, error, owned: "tried", againMs };
  }

  /** @param isTry the kernel's answer to the difference is wanted, so that a repair does not wait. */
  async #apply(isTry: boolean): Promise<ApplyResult> {
    const start = this.repair.begin();
    // What has been refused once is tried again soon: either it works, or the table is written from scratch.
    const repair = isTry || this.repair.waitMs() === 0 || this.#lastResort.refusals > 0;
    try {
      const result = await this.table.apply({ repair });
      this.repair.applied(result, start);
      return result;
    } catch (error) {
      if (repair) this.repair.spent(start);
      throw error;
    }
  }

  close(): void {
    this.owner.close();
    this.table.close();
  }

  #required(): { ruleset: FamilyRuleset; quarantine: Quarantine } {
    if (this.#services === undefined) throw new Error(`the ${this.family} ruleset has no options yet`);
    return this.#services;
  }

  /** Once for each chain. */
  #reportBusy(chains: readonly string[]): void {
    const news = chains.filter((chain) => !this.#busy.has(chain));
    this.#busy = new Set(chains);
    if (news.length === 0) return;
    this.#context.log.warn(
      { family: this.family, chains: news.slice(0, MAX_REFUSED), total: chains.length },
      "unused chains reported busy by the kernel; keeping them, empty, until the table is made anew",
    );
  }

  /** The old ruleset stays in force; says what the kernel refused, as far as it told. */
  #report(error: unknown): void {
    if (error instanceof TableError && error.code === "stale") {
      this.#context.log.debug({ family: this.family, err: error }, "waiting for a repair");
      return;
    }
    const refused = error instanceof TableError ? this.#required().ruleset.attribute(error.faulty) : [];
    this.#context.log.error(
      { family: this.family, err: error, ...(refused.length === 0 ? {} : { refused: refused.slice(0, MAX_REFUSED) }) },
      "writing the table failed",
    );
  }
}

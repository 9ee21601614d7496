import type { Kernel } from "../nft/kernel/kernel.js";
import type { IpFamily } from "../base/ip.js";
import type { ServiceAddress } from "../model/service-address.js";
import { FamilyRuleset, type RulesetOptions } from "../ruleset/family-ruleset.js";
import { FORMER_SERVICE_MAPS, TABLE_COMMENT, TABLE_NAME } from "../ruleset/names.js";
import type { ProxierContext } from "./proxier-context.js";
import { servedAddresses } from "./served-addresses.js";
import {
  type ApplyResult,
  describeRefusal,
  joinResults,
  probeRuleFeatures,
  type RuleFeatures,
  Table,
  TableError,
} from "../nft/engine-exports.js";
import type { Contention } from "./contention.js";
import { Quarantine } from "./quarantine.js";
import { LastResort } from "./last-resort.js";
import { OwnerWait } from "./owner-wait.js";
import { FamilyRepair } from "./family-repair.js";

/** The outcome of one write of one family. */
export type FamilyOutcome =
  | {
      readonly ok: true;
      readonly result: ApplyResult;
      /** Services that are not active as desired, because the kernel rejects them. */
      readonly quarantined: readonly string[];
      /** Whether the table has drifted and its repair is pending. */
      readonly repairPending: boolean;
      /** Time until there is something to write again, ms, even if nothing changes. Absent if there is nothing. */
      readonly againMs?: number;
    }
  | {
      readonly ok: false;
      readonly error: unknown;
      /** Time until a retry may succeed, ms. Absent if unknown. */
      readonly againMs?: number;
      /**
       * Another program owns the table. "tried": it was the result of an attempt. "waiting": the next attempt is not
       * due yet.
       */
      readonly owned?: "tried" | "waiting";
      /** The kernel refuses to change the table. After a few more attempts it is written from scratch. */
      readonly rebuildPending?: boolean;
    };

/** Maximum number of refused objects to log. */
const MAX_REFUSED = 5;

interface FamilyOptions extends ProxierContext {
  readonly kernel: Kernel;
  /** Whether to prevent other processes from changing the table while we run. */
  readonly ownTable: boolean;
  readonly pieceElements?: number;
  readonly contention: Contention;
  /** See FamilyRepairOptions. */
  readonly cpuMs?: () => number;
  /** nftables.syncPeriod, ms. */
  readonly syncPeriodMs: number;
  /** Requests a write now. */
  readonly request: () => void;
}

/** One family's table and ruleset. The two families are independent: a failure in one does not affect the other. */
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
  /** Chains that the kernel does not release, as last reported. */
  #busy: ReadonlySet<string> = new Set();
  #features: Promise<RuleFeatures | undefined> | undefined;
  /** Claims that, before the first write, were served by maps that we do not have. */
  #former: readonly ServiceAddress[] = [];

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

  /** Whether options are known. Nothing can be desired before. */
  get ready(): boolean {
    return this.#services !== undefined;
  }

  /** Throws until `ready`. */
  get ruleset(): FamilyRuleset {
    return this.#required().ruleset;
  }

  /** Throws until `ready`. */
  get quarantine(): Quarantine {
    return this.#required().quarantine;
  }

  /**
   * Probes once which rule features the kernel accepts, because it would reject the whole table for one unsupported
   * rule. Returns undefined if the probe failed or was inconclusive; the next call then repeats it. Never throws.
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

  /** Sets the options that apply from now on. */
  setOptions(options: RulesetOptions): void {
    if (this.#options !== undefined && JSON.stringify(this.#options) === JSON.stringify(options)) return;
    this.#options = options;
    if (this.#services !== undefined) return this.#services.ruleset.setOptions(options);
    const ruleset = new FamilyRuleset(this.table, this.family, options);
    const quarantine = new Quarantine({ ...this.#context, family: this.family, ruleset });
    this.#services = { ruleset, quarantine };
  }

  /** Reads the kernel's table, so that correct parts are known before anything is desired. */
  async load(): Promise<void> {
    await this.table.load();
    this.#former = await servedAddresses(this.#kernel, this.family, new Set(FORMER_SERVICE_MAPS));
  }

  /**
   * Returns the addresses that the kernel's table served when it was loaded, without those of our services in this layout.
   * Call it only once.
   */
  takeFormerAddresses(): readonly ServiceAddress[] {
    const former = this.#former;
    this.#former = [];
    return [...former, ...this.ruleset.undesiredAddresses()];
  }

  /** Writes the differences, without services that the kernel rejects. Never throws. */
  async write(now: number): Promise<FamilyOutcome> {
    const { ruleset, quarantine } = this;
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
      return { ok: false, error, againMs: pendingMs || undefined, rebuildPending: inMs !== undefined };
    }
  }

  #written(results: readonly ApplyResult[]): FamilyOutcome {
    const { quarantine } = this;
    this.owner.over();
    this.#lastResort.over();
    const result = results.reduce(joinResults);
    this.#reportBusy(result.busy ?? []);
    const waits = [result.applyAgainMs, this.repair.pendingMs, quarantine.nextRetryMs].filter((ms) => ms !== undefined);
    return {
      ok: true,
      result,
      quarantined: quarantine.services,
      repairPending: this.table.invalidated,
      againMs: waits.length === 0 ? undefined : Math.min(...waits),
    };
  }

  /** Writes the table from scratch. @param cause the refusal that left no other option. */
  async #rebuild(cause: TableError): Promise<FamilyOutcome> {
    const { family, quarantine } = this;
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
    else this.#context.log.debug({ family: this.family, err: error }, "another program still owns the table");
    const againMs = this.owner.waiting?.againMs;
    return { ok: false, error, owned: "tried", againMs };
  }

  /** @param isTry whether the kernel's answer to this difference is needed, so that a repair must not wait. */
  async #apply(isTry: boolean): Promise<ApplyResult> {
    const start = this.repair.begin();
    // After a refusal the repair must not wait: either it succeeds soon, or the table is written from scratch.
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
    if (this.#services === undefined) throw new Error(`the options of the ${this.family} ruleset are not set yet`);
    return this.#services;
  }

  /** Warns once per chain. */
  #reportBusy(chains: readonly string[]): void {
    const news = chains.filter((chain) => !this.#busy.has(chain));
    this.#busy = new Set(chains);
    if (news.length === 0) return;
    this.#context.log.warn(
      { family: this.family, chains: news.slice(0, MAX_REFUSED), total: chains.length },
      "the kernel reports unused chains as busy; they remain, empty, until the table is rewritten",
    );
  }

  /** Logs the rejected operations that the kernel named. The old ruleset stays active. */
  #report(error: unknown): void {
    if (error instanceof TableError && error.code === "stale") {
      this.#context.log.debug({ family: this.family, err: error }, "waiting for a repair");
      return;
    }
    const refused = error instanceof TableError ? this.ruleset.attribute(error.faulty) : [];
    this.#context.log.error(
      { family: this.family, err: error, refused: refused.length === 0 ? undefined : refused.slice(0, MAX_REFUSED) },
      "writing the table failed",
    );
  }
}

import type { Kernel } from "../kernel/types.js";
import type { IpFamily, ServicePortView } from "../model/types.js";
import type { Logger } from "../observe/log.js";
import { FamilyRuleset, type RulesetOptions } from "../ruleset/ruleset.js";
import { isDrawChain, TABLE_NAME } from "../ruleset/names.js";
import { Table, TableError } from "../table/index.js";
import type { ApplyResult, Clock } from "../table/types.js";
import type { ProxierObserver } from "./observer.js";
import { FamilyRepair } from "./repair.js";

/** Outcome of one write of one family. */
export type FamilyOutcome =
  | { readonly ok: true; readonly result: ApplyResult }
  /** `againMs`: until it may go better, where that is known. */
  | { readonly ok: false; readonly error: unknown; readonly againMs?: number };

/** One family's table and ruleset. The two families never mix: one that fails leaves the other alone. */
export class FamilyProxier {
  readonly family: IpFamily;
  readonly table: Table;
  readonly repair: FamilyRepair;
  readonly #log: Logger;
  #ruleset: FamilyRuleset | undefined;
  #options: RulesetOptions | undefined;

  constructor(family: IpFamily, kernel: Kernel, clock: Clock, log: Logger, observers: readonly ProxierObserver[] = []) {
    this.family = family;
    this.#log = log;
    this.table = new Table(kernel, {
      lateChains: isDrawChain,
      family,
      name: TABLE_NAME,
      comment: "rules for kube-proxy",
      clock,
      targetsFirst: true,
    });
    this.repair = new FamilyRepair(family, this.table, log, clock, observers);
  }

  /** True once options are known: nothing can be wanted before. */
  get ready(): boolean {
    return this.#ruleset !== undefined;
  }

  /** Takes the options that hold from now on. */
  setOptions(options: RulesetOptions): void {
    if (this.#options !== undefined && JSON.stringify(this.#options) === JSON.stringify(options)) return;
    this.#options = options;
    if (this.#ruleset === undefined) this.#ruleset = new FamilyRuleset(this.table, this.family, options);
    else this.#ruleset.setOptions(options);
  }

  setServiceCIDRs(cidrs: readonly string[]): void {
    this.#required().setServiceCIDRs(cidrs);
  }

  update(service: string, views: readonly ServicePortView[]): void {
    this.#required().update(service, views);
  }

  /** Reads the kernel's table, so that what is already right is known before anything is wanted. */
  async load(): Promise<void> {
    await this.table.load();
  }

  /** Writes what differs. Never throws. */
  async write(now: number): Promise<FamilyOutcome> {
    try {
      this.#required().collectUnused(now);
      const result = await this.table.apply({ repair: this.repair.waitMs() === 0 });
      this.repair.applied(result);
      return { ok: true, result: this.#withRepair(result) };
    } catch (error) {
      this.#report(error);
      const againMs = this.repair.pendingMs;
      return { ok: false, error, ...(againMs === undefined || againMs === 0 ? {} : { againMs }) };
    }
  }

  render(): string {
    return this.table.render();
  }

  close(): void {
    this.table.close();
  }

  /** A repair that has to wait is a reason to write again. */
  #withRepair(result: ApplyResult): ApplyResult {
    const wait = this.repair.pendingMs;
    if (wait === undefined) return result;
    return { ...result, applyAgainMs: Math.min(wait, result.applyAgainMs ?? wait) };
  }

  #required(): FamilyRuleset {
    if (this.#ruleset === undefined) throw new Error(`the ${this.family} ruleset has no options yet`);
    return this.#ruleset;
  }

  /** The old ruleset stays in force; says which object's operation the kernel refused. */
  #report(error: unknown): void {
    if (error instanceof TableError && error.code === "stale") {
      this.#log.debug({ family: this.family, err: error }, "waiting for a repair");
      return;
    }
    const faulty = error instanceof TableError ? error.faulty : [];
    if (faulty.length === 0) {
      this.#log.error({ family: this.family, err: error }, "the kernel's table was not changed");
      return;
    }
    for (const fault of faulty) {
      const { service, what } = this.#required().attribute(fault);
      this.#log.error(
        { family: this.family, service, refused: what },
        "the kernel refused an operation; the table stays as it was",
      );
    }
  }
}

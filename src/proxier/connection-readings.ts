/** Reads the kernel's counters of connections and refusals on request, at most once a second. */
import type { IpFamily } from "../base/ip.js";
import { type ConnectionCounts, NOT_COUNTED } from "../ruleset/connection-counts.js";
import type { ServiceAddress } from "../model/service-address.js";
import type { FamilyRuleset } from "../ruleset/family-ruleset.js";
import type { Clock, Table } from "../table/table-exports.js";
import type { Refusal } from "./refusal-readings.js";

const FRESH_MS = 1000;

export interface CountingFamily {
  readonly family: IpFamily;
  readonly ready: boolean;
  readonly table: Pick<Table, "readCounters">;
  readonly ruleset: Pick<FamilyRuleset, "connections" | "busyAddresses">;
}

export class ConnectionReadings {
  readonly #families: readonly CountingFamily[];
  readonly #clock: Clock;
  /** Time of the last reading, ms. */
  #at: number | undefined;
  #intervalMs: number | undefined;
  #reading: Promise<void> | undefined;
  readonly #readRefusals: (family: IpFamily) => Promise<readonly Refusal[]>;
  /** Called after each reading. */
  onRead: (() => void) | undefined;
  readonly #refusals = new Map<IpFamily, readonly Refusal[]>();

  constructor(
    families: readonly CountingFamily[],
    clock: Clock,
    readRefusals: (family: IpFamily) => Promise<readonly Refusal[]>,
  ) {
    this.#families = families;
    this.#clock = clock;
    this.#readRefusals = readRefusals;
  }

  /** The refused connections as of the last reading. */
  refusals(family: IpFamily): readonly Refusal[] {
    return this.#refusals.get(family) ?? [];
  }

  /** Time between the last two readings. Undefined if there were none. */
  get intervalMs(): number | undefined {
    return this.#intervalMs;
  }

  /**
   * Resolves when the data of `connections` is at most a second old. If the kernel cannot be read, it resolves with
   * older data.
   */
  async read(): Promise<void> {
    if (this.#at !== undefined && this.#clock.now() - this.#at < FRESH_MS) return;
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined));
    await this.#reading;
  }

  /** Counts of "namespace/name", as of the last reading. */
  connections(family: IpFamily, service: string): ConnectionCounts {
    const counting = this.#families.find((one) => one.family === family);
    return counting?.ready === true ? counting.ruleset.connections(service) : NOT_COUNTED;
  }

  /** Calls `visit` with each address that got connections between the last two readings, or a refusal within the last hour. */
  forEachBusy(visit: (address: ServiceAddress) => void): void {
    for (const { family, ready, ruleset } of this.#families) {
      if (!ready) continue;
      for (const address of ruleset.busyAddresses()) visit(address);
      for (const refusal of this.refusals(family)) if (refusal.reason !== "endpoint") visit(refusal);
    }
  }

  async #read(): Promise<void> {
    const at = this.#clock.now();
    await Promise.all([
      ...this.#families.map(({ table }) => table.readCounters()),
      ...this.#families.map(async ({ family }) => this.#refusals.set(family, await this.#readRefusals(family))),
    ]);
    this.#intervalMs = this.#at === undefined ? undefined : at - this.#at;
    this.#at = at;
    this.onRead?.();
  }
}

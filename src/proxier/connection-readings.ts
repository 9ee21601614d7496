/** Reads the kernel's counters of connections and refusals on request, at most once a second. */
import type { IpFamily } from "../base/ip.js";
import { type ConnectionCounts, NOT_COUNTED } from "../ruleset/connection-counts.js";
import type { ServiceAddress } from "../model/service-address.js";
import type { FamilyRuleset } from "../ruleset/family-ruleset.js";
import type { Clock, Table } from "../nft/engine-exports.js";
import type { RefusalReadings } from "./refusal-readings.js";

const FRESH_MS = 1000;
/** A rate over a longer time is not the present one. */
const RECENT_MS = 120_000;
/** An address is busy for this time after a refusal, ms. */
const BUSY_MS = 60_000;

export interface CountingFamily {
  readonly family: IpFamily;
  readonly ready: boolean;
  readonly table: Pick<Table, "readCounters">;
  readonly ruleset: Pick<FamilyRuleset, "connections" | "busyAddresses">;
}

export class ConnectionReadings {
  /** Time of the last reading, ms. */
  #at: number | undefined;
  #intervalMs: number | undefined;
  #reading: Promise<void> | undefined;
  /** Called after each reading. */
  onRead: (() => void) | undefined;

  constructor(
    private readonly families: readonly CountingFamily[],
    private readonly clock: Clock,
    private readonly refusals: RefusalReadings,
  ) {}

  /** Time between the last two readings. Undefined if there were none, or it is too long for a present rate. */
  get intervalMs(): number | undefined {
    return this.#intervalMs;
  }

  /**
   * Resolves when the data of `connections` is at most a second old. If the kernel cannot be read, it resolves with
   * older data.
   */
  async read(): Promise<void> {
    if (this.#at !== undefined && this.clock.now() - this.#at < FRESH_MS) return;
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined));
    await this.#reading;
  }

  /** Counts of "namespace/name", as of the last reading. */
  connections(family: IpFamily, service: string): ConnectionCounts {
    const counting = this.families.find((one) => one.family === family);
    return counting?.ready === true ? counting.ruleset.connections(service) : NOT_COUNTED;
  }

  /** Calls `visit` with each address that got connections between the last two readings, or a refusal within the last minute. */
  forEachBusy(visit: (address: ServiceAddress) => void): void {
    for (const { family, ready, ruleset } of this.families) {
      if (!ready) continue;
      for (const address of ruleset.busyAddresses()) visit(address);
      for (const refusals of this.refusals.of(family).addresses.values()) {
        if (refusals.some(({ agoMs }) => agoMs < BUSY_MS)) visit(refusals[0]);
      }
    }
  }

  async #read(): Promise<void> {
    const at = this.clock.now();
    await Promise.all([...this.families.map(({ table }) => table.readCounters()), this.refusals.read()]);
    const intervalMs = this.#at === undefined ? Infinity : at - this.#at;
    this.#intervalMs = intervalMs > RECENT_MS ? undefined : intervalMs;
    this.#at = at;
    this.onRead?.();
  }
}

/** Reads the kernel's connection counters on request, at most once a second. */
import type { IpFamily } from "../base/ip.js";
import type { PortCounts } from "../ruleset/connection-counts.js";
import type { Clock } from "../table/table-exports.js";

const FRESH_MS = 1000;

/** A source of counters: a Proxier. */
export interface CountingProxier {
  readCounters(): Promise<void>;
  connections(family: IpFamily, service: string): PortCounts;
}

export class ConnectionReadings {
  readonly #proxier: CountingProxier;
  readonly #clock: Clock;
  /** Time of the last reading, ms. */
  #at: number | undefined;
  #intervalMs: number | undefined;
  #reading: Promise<void> | undefined;

  constructor(proxier: CountingProxier, clock: Clock) {
    this.#proxier = proxier;
    this.#clock = clock;
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

  connections(family: IpFamily, service: string): PortCounts {
    return this.#proxier.connections(family, service);
  }

  async #read(): Promise<void> {
    const at = this.#clock.now();
    await this.#proxier.readCounters();
    this.#intervalMs = this.#at === undefined ? undefined : at - this.#at;
    this.#at = at;
  }
}

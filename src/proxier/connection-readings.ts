/** Reads what the kernel has counted of connections: when it is asked for, and once a second at most. */
import type { IpFamily } from "../base/ip.js";
import type { PortCounts } from "../ruleset/connection-counts.js";
import type { Clock } from "../table/table-exports.js";

const FRESH_MS = 1000;

/** What counts: a Proxier. */
export interface CountingProxier {
  readCounters(): Promise<void>;
  connections(family: IpFamily, service: string): PortCounts;
}

export class ConnectionReadings {
  readonly #proxier: CountingProxier;
  readonly #clock: Clock;
  /** Of the last reading, ms. */
  #at: number | undefined;
  #intervalMs: number | undefined;
  #reading: Promise<void> | undefined;

  constructor(proxier: CountingProxier, clock: Clock) {
    this.#proxier = proxier;
    this.#clock = clock;
  }

  /** Between the last two readings; undefined: there were none. */
  get intervalMs(): number | undefined {
    return this.#intervalMs;
  }

  /** Resolves when what `connections` says is at most a second old, or the kernel cannot be read: then it is as old as it is. */
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

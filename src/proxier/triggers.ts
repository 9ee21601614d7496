import type { SliceObject } from "../objects/records.js";
import type { IpFamily } from "../base/ip.js";

/**
 * When the changes happened that are not in force yet, for the metric of network programming latency
 * (kube-proxy: pkg/proxy/endpointschangetracker.go). Only changes from after the program's start: before it no one could
 * have been waiting for us. A slice that is removed takes its times along, as there: its removal has no time of its own.
 */
export class TriggerTimes {
  readonly #startedAt: number;
  readonly #pending: Readonly<Record<IpFamily, Map<string, number[]>>> = { ip: new Map(), ip6: new Map() };

  /** @param startedAt Unix ms. */
  constructor(startedAt: number) {
    this.#startedAt = startedAt;
  }

  /** A slice changed in a way that matters. */
  note({ name, trigger }: SliceObject): void {
    if (trigger === undefined || trigger.at <= this.#startedAt) return;
    const pending = this.#pending[trigger.family];
    const times = pending.get(name);
    if (times === undefined) pending.set(name, [trigger.at]);
    else times.push(trigger.at);
  }

  remove(name: string): void {
    this.#pending.ip.delete(name);
    this.#pending.ip6.delete(name);
  }

  /** The times that a write of this family is about, Unix ms; they are pending no more. */
  take(family: IpFamily): number[] {
    const pending = this.#pending[family];
    if (pending.size === 0) return [];
    const times = [...pending.values()].flat();
    pending.clear();
    return times;
  }
}

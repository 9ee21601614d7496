import type { SliceObject } from "../objects/records.js";
import type { IpFamily } from "../base/ip.js";

/**
 * Times of the changes that are not active yet, for the metric of network programming latency (kube-proxy:
 * pkg/proxy/endpointschangetracker.go). Only changes after the program's start count, because nothing waited for us
 * before. As in kube-proxy, removing a slice also removes its times, because the removal has no time of its own.
 */
export class TriggerTimes {
  readonly #pending: Readonly<Record<IpFamily, Map<string, number[]>>> = { ip: new Map(), ip6: new Map() };

  /** @param startedAt Unix ms. */
  constructor(private readonly startedAt: number) {}

  /** A slice changed in a way that matters. */
  note({ name, trigger }: SliceObject): void {
    if (trigger === undefined || trigger.at <= this.startedAt) return;
    const pending = this.#pending[trigger.family];
    const times = pending.get(name);
    if (times === undefined) pending.set(name, [trigger.at]);
    else times.push(trigger.at);
  }

  remove(name: string): void {
    this.#pending.ip.delete(name);
    this.#pending.ip6.delete(name);
  }

  /** Returns the times that a write of this family covers, Unix time, ms. They are no longer pending. */
  take(family: IpFamily): number[] {
    const pending = this.#pending[family];
    if (pending.size === 0) return [];
    const times = [...pending.values()].flat();
    pending.clear();
    return times;
  }
}

import type { V1EndpointSlice } from "@kubernetes/client-node";
import type { IpFamily } from "../model/types.js";

/** Set by the EndpointSlice controller: when the Pod or Service change happened that led to the slice's last change. */
const TRIGGER_ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time";

const FAMILY_OF_TYPE: Readonly<Record<string, IpFamily>> = { IPv4: "ip", IPv6: "ip6" };

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

  /** A slice changed in a way that matters. `name` is "namespace/name". */
  note(name: string, slice: V1EndpointSlice): void {
    const text: unknown = slice.metadata?.annotations?.[TRIGGER_ANNOTATION];
    const family = FAMILY_OF_TYPE[slice.addressType];
    if (typeof text !== "string" || family === undefined) return;
    const at = Date.parse(text);
    // False for NaN too.
    if (!(at > this.#startedAt)) return;
    const times = this.#pending[family].get(name);
    if (times === undefined) this.#pending[family].set(name, [at]);
    else times.push(at);
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

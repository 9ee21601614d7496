/**
 * Annotation nft-proxier.dev/drain-seconds: connections to an endpoint that terminates are kept for so long, whether or not it says that it is
 * serving, and are then ended as if the endpoint were gone. The time begins when it is first seen to drain: slices do not say since when, so that a
 * restart of the program begins anew.
 *
 * Stands between the model and who asks it about connections: each answer of `targets` notes what drains.
 */
import type { IpFamily, ServiceTarget } from "../../model/types.js";
import type { GoneEndpoint } from "./scope.js";
import type { TargetSource } from "./service-knowledge.js";

export interface DrainsOptions {
  readonly model: TargetSource;
  /** The time of these endpoints of "namespace/name" is over. */
  readonly onOver: (family: IpFamily, service: string, endpoints: readonly GoneEndpoint[]) => void;
  /** ms, monotonic. Default performance.now. */
  readonly now?: () => number;
}

/** Of one service port. */
interface Draining {
  /** By "address port": when it began, ms. */
  readonly since: ReadonlyMap<string, number>;
  readonly timer: NodeJS.Timeout | undefined;
}

/** A timer may be early by a part of a millisecond. */
const SLACK_MS = 5;

export class Drains {
  readonly #options: DrainsOptions;
  readonly #now: () => number;
  /** By family and "namespace/name", and by ServiceTarget.id: those with a draining endpoint alone. */
  readonly #draining = new Map<string, ReadonlyMap<string, Draining>>();
  #stopped = false;

  constructor(options: DrainsOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  /** The model, as connections see it. */
  source(): TargetSource {
    const { model } = this.#options;
    return {
      services: () => model.services(),
      ownerOf: (...asked) => model.ownerOf(...asked),
      takeReleased: () => model.takeReleased(),
      endpointsAmong: (...asked) => model.endpointsAmong(...asked),
      targets: (family, service) => this.#targets(family, service),
    };
  }

  stop(): void {
    this.#stopped = true;
    for (const ports of this.#draining.values()) clearTimers(ports);
    this.#draining.clear();
  }

  #targets(family: IpFamily, service: string): ServiceTarget[] {
    const targets = this.#options.model.targets(family, service);
    const key = `${family} ${service}`;
    const before = this.#draining.get(key);
    if (before === undefined && targets.every(({ draining }) => draining === undefined)) return targets;
    const after = new Map<string, Draining>();
    const seen = targets.map((target) => this.#seen(family, target, before?.get(target.id), after));
    // Of ports that are no more as well.
    clearTimers(before);
    if (after.size > 0) this.#draining.set(key, after);
    else this.#draining.delete(key);
    return seen;
  }

  /** @param after what drains of it is added. */
  #seen(
    family: IpFamily,
    target: ServiceTarget,
    before: Draining | undefined,
    after: Map<string, Draining>,
  ): ServiceTarget {
    const { draining, drainSeconds } = target;
    if (draining === undefined) return target;
    const now = this.#now();
    const over = (since: number): boolean => now - since >= drainSeconds * 1000 - SLACK_MS;
    const since = new Map<string, number>();
    const kept: number[] = [];
    const serving = target.serving.slice();
    for (const [i, { address, port }] of target.endpoints.entries()) {
      if (draining[i]) {
        const began = before?.since.get(`${address} ${port}`) ?? now;
        since.set(`${address} ${port}`, began);
        if (over(began)) continue;
        serving[i] = true;
      }
      kept.push(i);
    }
    if (since.size > 0 && !this.#stopped) after.set(target.id, { since, timer: this.#timer(family, target, since) });
    return { ...target, endpoints: kept.map((i) => target.endpoints[i]), serving: kept.map((i) => serving[i]) };
  }

  /** Until the next of these is over; undefined: all are. */
  #timer(
    family: IpFamily,
    { service, id, drainSeconds }: ServiceTarget,
    since: ReadonlyMap<string, number>,
  ): NodeJS.Timeout | undefined {
    const now = this.#now();
    const waits = Array.from(since.values(), (began) => began + drainSeconds * 1000 - now).filter(
      (ms) => ms > SLACK_MS,
    );
    if (waits.length === 0) return undefined;
    return setTimeout(() => this.#end(family, service, id), Math.min(...waits)).unref();
  }

  #end(family: IpFamily, service: string, id: string): void {
    const ended = this.#draining.get(`${family} ${service}`)?.get(id);
    if (ended === undefined) return;
    const target = this.#options.model.targets(family, service).find((each) => each.id === id);
    // It is gone, and so is what was noted of it.
    if (target === undefined) return void this.#targets(family, service);
    const over = target.endpoints
      .filter(({ address, port }) => ended.since.has(`${address} ${port}`))
      .map(({ address, port }) => ({ address, port, protocol: target.protocol }));
    this.#options.onOver(family, service, over);
  }
}

function clearTimers(ports: ReadonlyMap<string, Draining> | undefined): void {
  for (const { timer } of ports?.values() ?? []) clearTimeout(timer);
}

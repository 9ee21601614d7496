/**
 * Annotation nft-proxier.dev/drain-seconds: connections to an endpoint that terminates are kept for so long, whether or not it says that it is
 * serving, and are then ended as if the endpoint were gone. The time begins when it is first seen to drain: slices do not say since when, so that a
 * restart of the program begins anew.
 *
 * Stands between the model and who asks it about connections: each answer of `targets` notes what drains.
 */
import type { IpFamily } from "../../base/ip.js";
import type { ServiceTarget } from "../../model/service-port-view.js";
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
  readonly #draining = new Map<string, Map<string, Draining>>();
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
      target: (family, ...asked) => {
        const target = model.target(family, ...asked);
        return target && this.#seen(family, target);
      },
    };
  }

  stop(): void {
    this.#stopped = true;
    for (const ports of this.#draining.values()) clearTimers(ports);
    this.#draining.clear();
  }

  *#targets(family: IpFamily, service: string): Generator<ServiceTarget, void> {
    const draining = new Set<string>();
    for (const target of this.#options.model.targets(family, service)) {
      if (target.draining !== undefined) draining.add(target.id);
      yield this.#seen(family, target);
    }
    // Of ports that are no more as well.
    const key = `${family} ${service}`;
    for (const id of this.#draining.get(key)?.keys() ?? []) if (!draining.has(id)) this.#note(key, id, undefined);
  }

  /** Notes what drains of it. */
  #seen(family: IpFamily, target: ServiceTarget): ServiceTarget {
    const { service, id, draining, drainSeconds } = target;
    const key = `${family} ${service}`;
    const before = this.#draining.get(key)?.get(id);
    if (draining === undefined) {
      this.#note(key, id, undefined);
      return target;
    }
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
    const noted = since.size > 0 && !this.#stopped ? { since, timer: this.#timer(family, target, since) } : undefined;
    this.#note(key, id, noted);
    return { ...target, endpoints: kept.map((i) => target.endpoints[i]), serving: kept.map((i) => serving[i]) };
  }

  /** @param draining undefined: nothing of the port drains. */
  #note(key: string, id: string, draining: Draining | undefined): void {
    let ports = this.#draining.get(key);
    clearTimeout(ports?.get(id)?.timer);
    if (draining !== undefined) {
      if (ports === undefined) this.#draining.set(key, (ports = new Map()));
      ports.set(id, draining);
    } else if (ports?.delete(id) === true && ports.size === 0) this.#draining.delete(key);
  }

  /** Until the next of these is over; undefined: all are. */
  #timer(family: IpFamily, target: ServiceTarget, since: ReadonlyMap<string, number>): NodeJS.Timeout | undefined {
    const now = this.#now();
    const waits = Array.from(since.values(), (began) => began + target.drainSeconds * 1000 - now).filter(
      (ms) => ms > SLACK_MS,
    );
    if (waits.length === 0) return undefined;
    return setTimeout(() => this.#end(family, target), Math.min(...waits)).unref();
  }

  #end(family: IpFamily, { service, id, protocol, port }: ServiceTarget): void {
    const key = `${family} ${service}`;
    const ended = this.#draining.get(key)?.get(id);
    if (ended === undefined) return;
    const target = this.#options.model.target(family, service, "port", protocol, port);
    // It is gone, and so is what was noted of it.
    if (target?.id !== id) return this.#note(key, id, undefined);
    const over = target.endpoints
      .filter(({ address, port }) => ended.since.has(`${address} ${port}`))
      .map(({ address, port }) => ({ address, port, protocol: target.protocol }));
    this.#options.onOver(family, service, over);
  }
}

function clearTimers(ports: ReadonlyMap<string, Draining> | undefined): void {
  for (const { timer } of ports?.values() ?? []) clearTimeout(timer);
}

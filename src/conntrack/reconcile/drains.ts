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

interface Draining {
  readonly family: IpFamily;
  readonly service: string;
  /** By "address port": when it began, ms. */
  readonly since: ReadonlyMap<string, number>;
  readonly timer: NodeJS.Timeout | undefined;
}

/** A timer may be early by a part of a millisecond. */
const SLACK_MS = 5;

export class Drains {
  readonly #options: DrainsOptions;
  readonly #now: () => number;
  /** By family and ServiceTarget.id: those with a draining endpoint alone. */
  readonly #draining = new Map<string, Draining>();
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
      targets: (family, service) => model.targets(family, service).map((target) => this.#seen(family, target)),
    };
  }

  stop(): void {
    this.#stopped = true;
    for (const { timer } of this.#draining.values()) clearTimeout(timer);
    this.#draining.clear();
  }

  #seen(family: IpFamily, target: ServiceTarget): ServiceTarget {
    const { draining, drainSeconds } = target;
    const key = `${family} ${target.id}`;
    if (draining === undefined && !this.#draining.has(key)) return target;
    const before = this.#draining.get(key)?.since;
    const now = this.#now();
    const over = (since: number): boolean => now - since >= drainSeconds * 1000 - SLACK_MS;
    const since = new Map<string, number>();
    const kept: number[] = [];
    const serving = target.serving.slice();
    for (const [i, { address, port }] of target.endpoints.entries()) {
      if (draining?.[i] === true) {
        const began = before?.get(`${address} ${port}`) ?? now;
        since.set(`${address} ${port}`, began);
        if (over(began)) continue;
        serving[i] = true;
      }
      kept.push(i);
    }
    this.#note(key, family, target, since);
    return { ...target, endpoints: kept.map((i) => target.endpoints[i]), serving: kept.map((i) => serving[i]) };
  }

  #note(
    key: string,
    family: IpFamily,
    { service, drainSeconds }: ServiceTarget,
    since: ReadonlyMap<string, number>,
  ): void {
    clearTimeout(this.#draining.get(key)?.timer);
    this.#draining.delete(key);
    if (since.size === 0 || this.#stopped) return;
    const now = this.#now();
    const waits = Array.from(since.values(), (began) => began + drainSeconds * 1000 - now).filter(
      (ms) => ms > SLACK_MS,
    );
    const timer = waits.length === 0 ? undefined : setTimeout(() => this.#end(key), Math.min(...waits));
    timer?.unref();
    this.#draining.set(key, { family, service, since, timer });
  }

  #end(key: string): void {
    const ended = this.#draining.get(key);
    if (ended === undefined) return;
    const { family, service } = ended;
    const target = this.#options.model.targets(family, service).find(({ id }) => `${family} ${id}` === key);
    if (target === undefined) return void this.#draining.delete(key);
    const over = target.endpoints
      .filter(({ address, port }) => ended.since.has(`${address} ${port}`))
      .map(({ address, port }) => ({ address, port, protocol: target.protocol }));
    this.#options.onOver(family, service, over);
  }
}

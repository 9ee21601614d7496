/**
 * Implements the annotation nft-proxier.dev/drain-seconds. Connections to a terminating endpoint are kept for that
 * time, even if the endpoint does not say that it is serving. The same applies to connections of UDP and SCTP to any endpoint
 * that is no longer serving. After the time, the endpoint counts as gone. Slices do not say when an endpoint began to drain, so
 * the time starts when this process first sees it draining. A restart of the process therefore starts the time again.
 *
 * This class sits between the model and the code that asks the model about connections: each answer of `targets`
 * records which endpoints drain.
 */
import type { IpFamily } from "../../base/ip.js";
import type { ServiceTarget } from "../../model/service-port-view.js";
import type { TargetSource } from "./service-knowledge.js";

interface DrainsOptions {
  readonly model: TargetSource;
  /** The drain time of endpoints of "namespace/name" is over. */
  readonly onOver: (family: IpFamily, service: string) => void;
  /** Monotonic clock, ms. Default performance.now. */
  readonly now?: () => number;
}

/** The draining endpoints of one service port. */
interface Draining {
  /** "address port" → when it began to drain, ms. */
  readonly since: ReadonlyMap<string, number>;
  readonly timer: NodeJS.Timeout | undefined;
}

/** A timer may fire a fraction of a millisecond early. */
const SLACK_MS = 5;

export class Drains {
  readonly #now: () => number;
  /** "family namespace/name" → ServiceTarget.id → its draining endpoints. Ports without any are absent. */
  readonly #draining = new Map<string, Map<string, Draining>>();
  #stopped = false;

  constructor(private readonly options: DrainsOptions) {
    this.#now = options.now ?? (() => performance.now());
  }

  /** The model, with drained endpoints removed and draining ones serving. */
  source(): TargetSource {
    const { model } = this.options;
    return {
      services: () => model.services(),
      ownerOf: (...asked) => model.ownerOf(...asked),
      takeRemovals: () => model.takeRemovals(),
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
    for (const ports of this.#draining.values()) for (const { timer } of ports.values()) clearTimeout(timer);
    this.#draining.clear();
  }

  *#targets(family: IpFamily, service: string): Generator<ServiceTarget, void> {
    const draining = new Set<string>();
    for (const target of this.options.model.targets(family, service)) {
      if (target.draining !== undefined) draining.add(target.id);
      yield this.#seen(family, target);
    }
    // Also forget ports that no longer exist.
    const key = `${family} ${service}`;
    for (const id of this.#draining.get(key)?.keys() ?? []) if (!draining.has(id)) this.#note(key, id, undefined);
  }

  /** Records the target's draining endpoints. */
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

  /** @param draining undefined if no endpoint of the port is draining. */
  #note(key: string, id: string, draining: Draining | undefined): void {
    let ports = this.#draining.get(key);
    clearTimeout(ports?.get(id)?.timer);
    if (draining !== undefined) {
      if (ports === undefined) this.#draining.set(key, (ports = new Map()));
      ports.set(id, draining);
    } else if (ports?.delete(id) === true && ports.size === 0) this.#draining.delete(key);
  }

  /** Starts a timer for the endpoint that ends next. Returns undefined if all have ended. */
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
    if (this.#draining.get(key)?.has(id) !== true) return;
    const target = this.options.model.target(family, service, "port", protocol, port);
    // The port is gone, so forget its endpoints.
    if (target?.id !== id) return this.#note(key, id, undefined);
    this.options.onOver(family, service);
  }
}

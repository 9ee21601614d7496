/**
 * The messages of /status/stream. All viewers share each update: its work does not grow with their number. Without viewers, it only remembers which
 * services changed, and reads nothing.
 */
import { addAbortListener } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import type { EventList, ServicePortStatus, StatusReport } from "../../observe/status-report.js";
import type { ProxierObserver, QuarantineReport, SyncReport } from "../../proxier/observer.js";
import type { ListedChanges } from "../answers/service-board.js";
import type { Route } from "../control/json-answers.js";
import { itemTexts, PiecewiseList } from "../control/json-parts.js";
import { type PageUpdate, type PortCounts, portKey, refusedAndDropped, type TrafficSample } from "./page-update.js";
import { BUCKET_MS, type WriteHistory } from "./write-history.js";

const UPDATE_MS = 2_000;
/** A viewer that returns later gets all services again. */
const KEPT_UPDATES = 30;
/** Ten minutes. */
const KEPT_SAMPLES = 300;
/** If more services change between two updates, every viewer gets all services again. */
const MOST_CHANGES = 2_000;
/** Maximum share of time in which counts are read and assigned to services. */
const COUNTING_SHARE = 0.003;
/** Maximum time between two readings of the counts, ms. */
const COUNTING_MS = 10_000;

/** Maximum age of the parts of the status that are read from the kernel, ms. */
const STATUS_MS = 10_000;

export interface PageFeedOptions {
  readonly status: (maxAgeMs: number) => Promise<StatusReport>;
  /** The control socket's routes. */
  readonly answers: Route;
  readonly services: ListedChanges;
  readonly history: WriteHistory;
  /** Time between two updates, ms. Default 2,000. */
  readonly updateMs?: number;
}

interface KeptUpdate {
  readonly number: number;
  readonly text: string;
}

type Refusals = ReturnType<typeof refusedAndDropped>;

export class PageFeed implements ProxierObserver {
  /** Differs after a restart of the daemon. */
  readonly #run = Date.now().toString(36);
  /** Number of the last update. */
  #number = 0;
  #latest: PageUpdate | undefined;
  #kept: KeptUpdate[] = [];
  /** A viewer whose last update is older needs all services again. */
  #floor = 0;
  #changed = new Set<string>();
  readonly #busy = new Set<string>();
  #reasons: ReadonlyMap<string, string> = new Map();
  #active = "";
  #samples: TrafficSample[] = [];
  #countsAt = Number.NEGATIVE_INFINITY;
  /** Whether `#refusals` has the counts as of an earlier reading, so that a difference is of this time. */
  #counting = false;
  /** Refused and dropped packets as of the last reading, by service and `portKey`, of ports that have any. */
  readonly #refusals = new Map<string, Map<string, Refusals>>();
  #viewers = 0;
  #running = false;
  #next = Promise.withResolvers<void>();

  constructor(private readonly options: PageFeedOptions) {}

  synced({ services }: SyncReport): void {
    for (const service of services) this.#note(service);
  }

  quarantined({ service }: QuarantineReport): void {
    this.#note(service);
  }

  released({ service }: Pick<QuarantineReport, "service">): void {
    this.#note(service);
  }

  #note(service: string): void {
    this.#changed.add(service);
    if (this.#changed.size > MOST_CHANGES) this.#startAgain();
  }

  /** Every viewer gets all services again. */
  #startAgain(): void {
    this.#changed.clear();
    this.#floor = this.#number + 1;
  }

  /**
   * Yields messages as texts for an EventSource.
   * @param after id of the last update that the viewer has.
   */
  async *follow(after: string | undefined, signal: AbortSignal): AsyncGenerator<string> {
    this.#viewers++;
    if (!this.#running) void this.#keepUpdating();
    try {
      let at = this.#numberOf(after);
      while (!signal.aborted) {
        const next = this.#next.promise;
        const missed = at !== undefined && at + 1 < (this.#kept[0]?.number ?? 0);
        if (at === undefined || missed || at < this.#floor) {
          const latest = this.#latest;
          if (latest !== undefined && this.#number >= this.#floor) {
            at = this.#number;
            yield messageOf(this.#whole(latest));
            yield* this.#list();
            continue;
          }
        } else {
          for (const { number, text } of this.#kept) {
            if (number <= at) continue;
            at = number;
            yield text;
          }
        }
        await settledOrAborted(next, signal);
      }
    } finally {
      this.#viewers--;
    }
  }

  #numberOf(id = ""): number | undefined {
    const [run, text] = id.split("-");
    const number = Number(text);
    const oldest = this.#kept[0]?.number ?? Infinity;
    return run === this.#run && number >= oldest - 1 && number <= this.#number ? number : undefined;
  }

  #whole(latest: PageUpdate): PageUpdate {
    const traffic = this.options.services.isCounting ? this.#samples : undefined;
    return { ...latest, ...{ writes: this.options.history.buckets(), traffic, changed: [], counts: undefined } };
  }

  async *#list(): AsyncGenerator<string> {
    const list = await this.options.answers(["services"]);
    // Before the first write, an empty list would report as deleted what the kernel still serves. A list follows that write.
    if (!(list instanceof PiecewiseList)) return;
    yield messageOf({ items: [], first: true });
    for await (const items of itemTexts(list.pieces)) yield `data: {"items":${items}}\n\n`;
    yield messageOf({ items: [], last: true });
  }

  async #keepUpdating(): Promise<void> {
    this.#running = true;
    const { services } = this.options;
    this.#counting = false;
    this.#countsAt = Number.NEGATIVE_INFINITY;
    services.onCounts((service) => this.#busy.add(service));
    try {
      while (this.#viewers > 0) {
        await this.#update();
        this.#next.resolve();
        this.#next = Promise.withResolvers();
        await sleep(this.options.updateMs ?? UPDATE_MS, undefined, { ref: false });
      }
    } catch (error) {
      // The viewers' requests fail with it, and the next viewer starts again.
      this.#next.promise.catch(() => undefined);
      this.#next.reject(error);
      this.#next = Promise.withResolvers();
    } finally {
      services.onCounts(undefined);
      // It would be outdated for the next viewer.
      this.#latest = undefined;
      this.#running = false;
    }
  }

  async #update(): Promise<void> {
    const { answers, services, history } = this.options;
    const now = Date.now();
    const status = await this.options.status(STATUS_MS);
    const events = [...((await answers(["events"])) as EventList).items];
    const active = status.families.map(({ inForce }) => inForce).join();
    if (active !== this.#active) this.#startAgain();
    this.#active = active;
    await this.#noteReasons();
    const names = this.#changed;
    this.#changed = new Set();
    const ports = await services.portsOf(names);
    for (const [service, { length }] of ports) if (length === 0) this.#refusals.delete(service);
    const counts = await this.#count(now);
    const before = this.#latest;
    const number = this.#number + 1;
    const update: PageUpdate = {
      ...{ id: `${this.#run}-${number}`, now, status },
      events: before !== undefined && events.at(-1)?.at === before.events?.at(-1)?.at ? undefined : events,
      writes: history.buckets(before === undefined ? 0 : before.now - BUCKET_MS),
      traffic: services.isCounting ? this.#samples.slice(counts === undefined ? Infinity : -1) : undefined,
      changed: Array.from(ports, ([service, all]) => ({ service, ports: all })),
      counts,
    };
    this.#number = number;
    this.#kept = [...this.#kept.slice(1 - KEPT_UPDATES), { number, text: messageOf(update) }];
    this.#latest = { ...update, events };
  }

  /** A service's claims may be lost to another one, so its reasons change with others. */
  async #noteReasons(): Promise<void> {
    const reasons = await this.options.services.reasons();
    for (const [service, reason] of reasons) if (this.#reasons.get(service) !== reason) this.#note(service);
    for (const service of this.#reasons.keys()) if (!reasons.has(service)) this.#note(service);
    this.#reasons = reasons;
  }

  /** Returns undefined if the counts were not read. */
  async #count(now: number): Promise<readonly PortCounts[] | undefined> {
    const { services } = this.options;
    const began = performance.now();
    if (!services.isCounting || began < this.#countsAt) return undefined;
    const intervalMs = await services.readCounts();
    const names = [...this.#busy];
    this.#busy.clear();
    if (!this.#counting) {
      await this.#beginCounting();
      return undefined;
    }
    if (intervalMs === undefined) return undefined;
    const counts = this.#countsOf(await services.portsOf(names), intervalMs);
    this.#countsAt = began + Math.min((performance.now() - began) / COUNTING_SHARE, COUNTING_MS);
    const sum = (of: (port: PortCounts) => number): number => counts.reduce((total, port) => total + of(port), 0);
    const sample = {
      ...{ at: now, connections: sum(({ connectionsPerSecond = 0 }) => connectionsPerSecond) },
      ...{ refused: sum(({ refused }) => refused), dropped: sum(({ dropped }) => dropped) },
    };
    this.#samples = [...this.#samples.slice(1 - KEPT_SAMPLES), sample];
    return counts;
  }

  /** The former counts may be from long ago. Before the first write, there is no list, and the kernel may have counts of an earlier run. */
  async #beginCounting(): Promise<void> {
    const list = await this.options.answers(["services"]);
    if (!(list instanceof PiecewiseList)) return;
    this.#refusals.clear();
    for await (const ports of list.pieces as AsyncIterable<readonly ServicePortStatus[]>) {
      for (const port of ports) if (port.refusals !== undefined) this.#noteRefusals(port);
    }
    this.#counting = true;
  }

  #noteRefusals(port: ServicePortStatus): void {
    const service = `${port.namespace}/${port.name}`;
    const ofService = this.#refusals.get(service) ?? new Map<string, Refusals>();
    this.#refusals.set(service, ofService.set(portKey(port), refusedAndDropped(port)));
  }

  #countsOf(ports: Awaited<ReturnType<ListedChanges["portsOf"]>>, intervalMs: number): PortCounts[] {
    // The kernel forgets a count after a pause, and starts again from zero.
    const perSecond = (now: number, last = 0): number => ((now < last ? now : now - last) / intervalMs) * 1_000;
    return Array.from(ports).flatMap(([service, all]) => {
      const before = this.#refusals.get(service);
      this.#refusals.delete(service);
      return all.map((port) => {
        const { connections, connectionsPerSecond, refusals } = port;
        const key = portKey(port);
        const { refused, dropped } = refusedAndDropped(port);
        const last = before?.get(key);
        if (refusals !== undefined) this.#noteRefusals(port);
        return {
          ...{ key, connections, connectionsPerSecond, refusals },
          refused: perSecond(refused, last?.refused),
          dropped: perSecond(dropped, last?.dropped),
        };
      });
    });
  }
}

/** Promise.race would leave a reaction at a promise that lives as long as the viewer, for each update. */
async function settledOrAborted(promise: Promise<void>, signal: AbortSignal): Promise<void> {
  const aborted = Promise.withResolvers<void>();
  const listener = addAbortListener(signal, () => aborted.resolve());
  await Promise.race([promise, aborted.promise]).finally(() => listener[Symbol.dispose]());
}

function messageOf(message: object): string {
  return `data: ${JSON.stringify(message)}\n\n`;
}

/**
 * Updates large services in pieces, so that one service's work does not delay another's change, and so do many services
 * that change at once. Each piece is written by its own transaction. Changes of other services are written in between, and several large services take turns.
 *
 *     dirty ─→ waiting ─→ preparing (views, slots: concurrent with writes) ─→ ready ─→ in pieces, one a write ─→ done
 *
 * The intermediate states are correct for packets: see FamilyRuleset.updateInPieces. If an object changes during its
 * update, the change is processed when the update is complete.
 * An address that moves between services updated here is served all the time. The previous owner keeps it until the new
 * one has it, and releases it in a second update. So two services can exchange their addresses.
 */
import { TimeSlice } from "../base/time-slice.js";
import type { ServiceModel } from "../model/service-model.js";
import type { IpFamily } from "../base/ip.js";
import { addressesOf } from "../model/service-address.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { FamilyRuleset, ServiceState } from "../ruleset/family-ruleset.js";
import type { Quarantine } from "./quarantine.js";

/** This takes the kernel some 20 to 40 ms. */
const PIECE_ELEMENTS = 8192;
/** Maximum number of services whose update has begun. This is more than one write needs. */
const MOST_BEGUN = 1024;
/**
 * Maximum number of event-loop slices, some 4 ms each, that one write may spend on pieces. Unchanged ports take time,
 * too.
 */
const PIECE_SLICES = 8;

interface LargeUpdatesFamily {
  readonly family: IpFamily;
  readonly quarantine: Pick<Quarantine, "updateInPieces">;
  readonly ruleset: Pick<FamilyRuleset, "prepare" | "sizeOf" | "state">;
}

interface LargeUpdatesOptions {
  readonly model: Pick<ServiceModel, "eachView" | "sizeOf" | "ownerOf" | "askedFor" | "isDirty">;
  readonly families: readonly LargeUpdatesFamily[];
  /** Called with the views that the service is going to have. */
  readonly onViews: (family: IpFamily, service: string, views: readonly ServicePortView[]) => void;
  readonly onError: (service: string, error: unknown) => void;
  /** There is something to write. */
  readonly onReady: () => void;
  /**
   * Maximum number of elements for one write, and as many of other services. Services with more are updated in pieces.
   * Default 8,192.
   */
  readonly pieceElements?: number;
}

/** Remaining work for a service. */
interface Task {
  /** When its change came, ms of the caller's clock. */
  readonly since: number;
  /**
   * The service already has everything that it needs. Its former elements are removed after others have taken them
   * over.
   */
  readonly isRest: boolean;
}

/** A complete update. It is active after the next write. */
export interface Updated {
  readonly service: string;
  /** When its change came, ms of the caller's clock. */
  readonly since: number;
}

interface Job extends Task {
  readonly service: string;
  readonly pieces: Generator<number, unknown>;
}

/** The desired state of a service in one family. */
interface Prepared {
  readonly updates: LargeUpdatesFamily;
  readonly views: readonly ServicePortView[];
  /** From FamilyRuleset.prepare. */
  readonly prepared: ServiceState | undefined;
}

export class LargeUpdates {
  /** Dirty services that have not been started. */
  readonly #waiting = new Map<string, Task>();
  readonly #preparing = new Map<string, Promise<void>>();
  readonly #ready: Job[] = [];
  /** The services in `#preparing` and `#ready`. */
  readonly #begun = new Map<string, Task>();
  /** The services among them that keep an address until the new owner has been updated. */
  readonly #keeping = new Set<string>();
  #beginning: Promise<void> = Promise.resolve();
  #isBeginning = false;
  /** Services that `#beginAll` has already passed may now be ready to start. */
  #beginAgain = false;

  constructor(private readonly options: LargeUpdatesOptions) {}

  /** Whether there is a piece to write. */
  get ready(): boolean {
    return this.#ready.length > 0;
  }

  /** Number of incomplete updates. */
  get size(): number {
    return this.#waiting.size + this.#preparing.size + this.#ready.length;
  }

  /**
   * Returns the time of the oldest change whose update is incomplete, in ms of the caller's clock, or undefined if
   * there is none.
   */
  get oldest(): number | undefined {
    let oldest = Infinity;
    for (const tasks of [this.#waiting, this.#begun])
      for (const { since, isRest } of tasks.values()) if (!isRest) oldest = Math.min(oldest, since);
    return oldest === Infinity ? undefined : oldest;
  }

  /** Resolves when there is a piece to write, or nothing left to do. */
  async settled(): Promise<void> {
    while (!this.ready) {
      if (this.#preparing.size > 0) await Promise.race(this.#preparing.values());
      else if (this.#isBeginning) await this.#beginning;
      else return;
    }
  }

  /**
   * Accepts the changed services that are large, too many for one write, or wait for one of these. Returns the others.
   * Calls must not overlap.
   */
  async accept(services: readonly string[], since: number): Promise<string[]> {
    const slice = new TimeSlice();
    // Check for large ones first, in any order: others may have lost an address to one of them.
    let others: readonly string[] = services;
    let room = this.#pieceElements;
    const isOurs = (service: string): boolean =>
      this.has(service) || this.#isLarge(service) || (room -= this.#sizeOf(service)) < 0;
    for (const belongs of [isOurs, this.#leavesToLarge]) {
      const rest: string[] = [];
      for (const service of others) {
        if (belongs(service)) this.#waiting.set(service, { since, ...this.#waiting.get(service), isRest: false });
        else rest.push(service);
        if (slice.spent) await slice.yield();
      }
      others = rest;
    }
    this.#begin();
    return [...others];
  }

  /** Updates some elements to match the objects. Returns the completed updates. */
  async advance(): Promise<Updated[]> {
    const updated: Updated[] = [];
    const slice = new TimeSlice();
    let slices = 0;
    for (let left = this.#pieceElements; left > 0 && slices < PIECE_SLICES;) {
      const [job] = this.#ready;
      if (job === undefined) break;
      const { done, value } = job.pieces.next();
      if (done === true) {
        this.#ready.shift();
        if (!job.isRest) updated.push(job);
        this.#end(job);
      } else left -= value;
      if (!slice.spent) continue;
      slices++;
      await slice.yield();
    }
    const first = this.#ready.shift();
    if (first !== undefined) this.#ready.push(first);
    this.#begin();
    return updated;
  }

  #end({ service, since }: Job): void {
    this.#begun.delete(service);
    const keeps = this.#keeping.delete(service);
    if (keeps && !this.#waiting.has(service)) this.#waiting.set(service, { since, isRest: true });
  }

  /** Updates the whole service in slices of the event loop. Use it only if nothing must be written in between. */
  async update(service: string): Promise<void> {
    try {
      const pieces = await this.#prepare(service, true);
      const slice = new TimeSlice();
      while (pieces.next().done !== true) if (slice.spent) await slice.yield();
    } catch (error) {
      this.options.onError(service, error);
    }
  }

  /** Whether an update of the service is incomplete. */
  has(service: string): boolean {
    return this.#waiting.has(service) || this.#begun.has(service);
  }

  /** Whether the service has many elements or needs slots, which take long to assign. */
  #isLarge(service: string): boolean {
    if (this.options.model.askedFor(service)?.balance !== undefined) return true;
    return this.#sizeOf(service) > this.#pieceElements;
  }

  get #pieceElements(): number {
    return this.options.pieceElements ?? PIECE_ELEMENTS;
  }

  #sizeOf(service: string): number {
    const { model, families } = this.options;
    return Math.max(...families.flatMap((one) => [model.sizeOf(one.family, service), one.ruleset.sizeOf(service)]));
  }

  /**
   * Whether an address of the service moves to a service updated here. If so, it must stay until that service has it.
   */
  readonly #leavesToLarge = (service: string): boolean =>
    this.size > 0 && this.#leavesTo(service, (owner) => this.has(owner));

  #leavesTo(service: string, includes: (owner: string) => boolean): boolean {
    const { model, families } = this.options;
    return families.some((one) => {
      for (const { view } of one.ruleset.state(service)) {
        for (const address of addressesOf(one.family, view)) {
          const owner = model.ownerOf(address);
          if (owner !== undefined && owner !== service && includes(owner)) return true;
        }
      }
      return false;
    });
  }

  /** Whether the service still has all addresses of the view. If not, it is dirty and another update follows. */
  #isCurrent(family: IpFamily, service: string, view: ServicePortView): boolean {
    if (!this.#waiting.has(service) && !this.options.model.isDirty(service)) return true;
    for (const address of addressesOf(family, view)) if (this.options.model.ownerOf(address) !== service) return false;
    return true;
  }

  /**
   * Whether no address of the view moves to a service that has not taken it over yet. Until then the view is served as
   * before.
   */
  #mayGo(family: IpFamily, service: string, view: ServicePortView): boolean {
    for (const address of addressesOf(family, view)) {
      const owner = this.options.model.ownerOf(address);
      if (owner === undefined || owner === service) continue;
      const task = this.#waiting.get(owner) ?? this.#begun.get(owner);
      if (task === undefined || task.isRest) continue;
      this.#keeping.add(service);
      return false;
    }
    return true;
  }

  /** Starts waiting services, except those that must wait for another update (#mustWait). */
  #begin(): void {
    this.#beginAgain = true;
    if (!this.#isBeginning) this.#beginning = this.#beginAll();
  }

  /** Yields to the event loop, because there may be thousands. */
  async #beginAll(): Promise<void> {
    this.#isBeginning = true;
    const slice = new TimeSlice();
    while (this.#beginAgain) {
      this.#beginAgain = false;
      for (const [service, task] of this.#waiting) {
        if (this.#begun.size >= MOST_BEGUN) break;
        if (!this.#mustWait(service, task)) this.#beginWith(service, task);
        if (slice.spent) await slice.yield();
      }
    }
    this.#isBeginning = false;
  }

  /**
   * Whether an earlier update of the service is incomplete, or a service that takes over one of its addresses is being
   * updated. A removal (`isRest`) also waits for those that have not started; they do not wait for the removal.
   */
  #mustWait(service: string, { isRest }: Task): boolean {
    if (this.#begun.has(service)) return true;
    const takers = isRest ? [this.#begun, this.#waiting] : [this.#begun];
    if (takers.every(({ size }) => size === 0)) return false;
    return this.#leavesTo(service, (owner) => takers.some((tasks) => tasks.get(owner)?.isRest === false));
  }

  #beginWith(service: string, task: Task): void {
    this.#waiting.delete(service);
    this.#begun.set(service, task);
    const prepared = this.#prepare(service, task.isRest)
      .then((pieces) => void this.#ready.push({ service, ...task, pieces }))
      .catch((error: unknown) => {
        this.#begun.delete(service);
        this.#begin();
        this.options.onError(service, error);
      })
      .finally(() => {
        this.#preparing.delete(service);
        this.options.onReady();
      });
    this.#preparing.set(service, prepared);
  }

  /** @param letsGo whether nothing must be kept for another service. */
  async #prepare(service: string, letsGo: boolean): Promise<Generator<number, unknown>> {
    const { model, families, onViews } = this.options;
    const slice = new TimeSlice();
    const all: Prepared[] = [];
    for (const updates of families) {
      const views: ServicePortView[] = [];
      for (const view of model.eachView(updates.family, service)) {
        if (view !== undefined) views.push(view);
        if (slice.spent) await slice.yield();
      }
      onViews(updates.family, service, views);
      all.push({ updates, views, prepared: await updates.ruleset.prepare(service, views) });
      slice.begin();
    }
    return this.#pieces(service, all, letsGo);
  }

  *#pieces(service: string, all: readonly Prepared[], letsGo: boolean): Generator<number, void> {
    for (const { updates, views, prepared } of all) {
      yield* updates.quarantine.updateInPieces(service, views, {
        prepared,
        isCurrent: (view) => this.#isCurrent(updates.family, service, view),
        mayGo: (view) => letsGo || this.#mayGo(updates.family, service, view),
      });
    }
  }
}

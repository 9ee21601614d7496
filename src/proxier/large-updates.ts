/**
 * One service's work must not delay another's change. A service with many elements is therefore updated in pieces, each written by a transaction of its own; changes of
 * other services go in between, and several large services take turns.
 *
 *     dirty ─→ waiting ─→ preparing (views, slots: beside the writes) ─→ ready ─→ in pieces, one a write ─→ done
 *
 * What is in force in between is right for packets: see FamilyRuleset.updateInPieces. An object that changes meanwhile is taken up when its update is through.
 * An address that passes between services which are updated here is served all the while: the one that had it keeps it until the other has it, and lets go of it
 * in a second update, so that two may exchange theirs.
 */
import { TimeSlice } from "../base/time-slice.js";
import type { SlottedPort } from "../model/balance/slot-assigner.js";
import type { ServiceModel } from "../model/service-model.js";
import type { IpFamily } from "../base/ip.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { FamilyProxier } from "./family.js";

/** Some 20 to 40 ms of the kernel's time. */
const PIECE_ELEMENTS = 8192;
/** Slices of the event loop that one write may spend on them, some 4 ms each: an unchanged port takes time, too. */
const PIECE_SLICES = 8;

export interface LargeUpdatesOptions {
  readonly model: Pick<ServiceModel, "eachView" | "sizeOf" | "ownerOf" | "asksForBalance" | "isDirty">;
  readonly families: readonly Pick<FamilyProxier, "family" | "prepare" | "updateInPieces" | "sizeOf" | "viewsOf">[];
  /** These are the views that the service is going to have. */
  readonly onViews: (family: IpFamily, service: string, views: readonly ServicePortView[]) => void;
  readonly onError: (service: string, error: unknown) => void;
  /** There is something to write. */
  readonly onReady: () => void;
  /** Elements that one write is about, beside those of other services; a service with more is updated in pieces. Default 8,192. */
  readonly pieceElements?: number;
}

/** Work that is left for a service. */
interface Task {
  /** When its change came, ms of the caller's clock. */
  readonly since: number;
  /** It has all that it is to have. What it had is to go once others have that. */
  readonly isRest: boolean;
}

/** An update that is through: with the next write it is in force. */
export interface Updated {
  readonly service: string;
  /** When its change came, ms of the caller's clock. */
  readonly since: number;
}

interface Job extends Task {
  readonly service: string;
  readonly pieces: Generator<number, unknown>;
}

type FamilyUpdates = LargeUpdatesOptions["families"][number];

/** The desired state of a service in one family. */
interface Prepared {
  readonly updates: FamilyUpdates;
  readonly views: readonly ServicePortView[];
  readonly slots: readonly SlottedPort[] | undefined;
}

export class LargeUpdates {
  readonly #options: LargeUpdatesOptions;
  /** Services that are dirty, and not looked at yet. */
  readonly #waiting = new Map<string, Task>();
  readonly #preparing = new Map<string, Promise<void>>();
  readonly #ready: Job[] = [];
  /** The services of both. */
  readonly #begun = new Map<string, Task>();
  /** Services among them that keep an address until the service that takes it over has been updated. */
  readonly #keeping = new Set<string>();
  #beginning: Promise<void> = Promise.resolve();
  #isBeginning = false;
  /** What `#beginAll` has been by may be begun with now. */
  #beginAgain = false;

  constructor(options: LargeUpdatesOptions) {
    this.#options = options;
  }

  /** There is a piece to be written. */
  get ready(): boolean {
    return this.#ready.length > 0;
  }

  /** Updates that are not through. */
  get size(): number {
    return this.#waiting.size + this.#preparing.size + this.#ready.length;
  }

  /** Returns when the oldest change came whose update is not complete, in ms of the caller's clock, or undefined if there is none. */
  get oldest(): number | undefined {
    let oldest = Infinity;
    for (const tasks of [this.#waiting, this.#begun])
      for (const { since, isRest } of tasks.values()) if (!isRest) oldest = Math.min(oldest, since);
    return oldest === Infinity ? undefined : oldest;
  }

  /** Resolves when there is a piece to be written, or nothing left to do. */
  async settled(): Promise<void> {
    while (!this.ready) {
      if (this.#preparing.size > 0) await Promise.race(this.#preparing.values());
      else if (this.#isBeginning) await this.#beginning;
      else return;
    }
  }

  /** Takes on those of the services, which changed, that are large, or wait for one that is. Returns the others. Calls must not overlap. */
  async take(services: readonly string[], since: number): Promise<string[]> {
    const slice = new TimeSlice();
    // The large ones first, whichever came first: others may have lost an address to one of them.
    let others: readonly string[] = services;
    for (const belongs of [this.#isOurs, this.#leavesToLarge]) {
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

  /** Brings some elements up to the objects. Returns the updates that are through. */
  async advance(): Promise<Updated[]> {
    const updated: Updated[] = [];
    const slice = new TimeSlice();
    let slices = 0;
    for (let left = this.#options.pieceElements ?? PIECE_ELEMENTS; left > 0 && slices < PIECE_SLICES;) {
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

  /** All of one service, in slices of the event loop: for a time at which nothing is to be written in between. */
  async update(service: string): Promise<void> {
    const slice = new TimeSlice();
    const pieces = await this.#prepare(service, true);
    while (pieces.next().done !== true) if (slice.spent) await slice.yield();
  }

  /** An update of the service is not through. */
  has(service: string): boolean {
    return this.#waiting.has(service) || this.#begun.has(service);
  }

  readonly #isOurs = (service: string): boolean => this.has(service) || this.isLarge(service);

  /** Slots take long to assign. */
  isLarge(service: string): boolean {
    const { model, families, pieceElements = PIECE_ELEMENTS } = this.#options;
    if (model.asksForBalance(service)) return true;
    return families.some(
      (one) => model.sizeOf(one.family, service) > pieceElements || one.sizeOf(service) > pieceElements,
    );
  }

  /** An address of the service passes to one that is updated here: it stays until that has it. */
  readonly #leavesToLarge = (service: string): boolean =>
    this.size > 0 && this.#leavesTo(service, (owner) => this.has(owner));

  #leavesTo(service: string, includes: (owner: string) => boolean): boolean {
    const { model, families } = this.#options;
    return families.some((one) => {
      for (const view of one.viewsOf(service)) {
        for (const [address, port] of addressesOf(view)) {
          const owner = model.ownerOf(one.family, address, view.protocol, port);
          if (owner !== undefined && owner !== service && includes(owner)) return true;
        }
      }
      return false;
    });
  }

  /** Whether the service has all that the view says. If not it is dirty, and another update follows. */
  #isCurrent(family: IpFamily, service: string, view: ServicePortView): boolean {
    if (!this.#waiting.has(service) && !this.#options.model.isDirty(service)) return true;
    for (const [address, port] of addressesOf(view))
      if (this.#options.model.ownerOf(family, address, view.protocol, port) !== service) return false;
    return true;
  }

  /** Whether nothing that the view says passes to a service which is still to take it: until then it is served as it was. */
  #mayGo(family: IpFamily, service: string, view: ServicePortView): boolean {
    for (const [address, port] of addressesOf(view)) {
      const owner = this.#options.model.ownerOf(family, address, view.protocol, port);
      if (owner === undefined || owner === service) continue;
      const task = this.#waiting.get(owner) ?? this.#begun.get(owner);
      if (task === undefined || task.isRest) continue;
      this.#keeping.add(service);
      return false;
    }
    return true;
  }

  /** Begins with services that wait, but for those whose update before is not through, or that of a service which is to have an address of theirs. */
  #begin(): void {
    this.#beginAgain = true;
    if (!this.#isBeginning) this.#beginning = this.#beginAll();
  }

  /** In slices of the event loop: there may be thousands. */
  async #beginAll(): Promise<void> {
    this.#isBeginning = true;
    const slice = new TimeSlice();
    while (this.#beginAgain) {
      this.#beginAgain = false;
      for (const [service, task] of this.#waiting) {
        if (!this.#mustWait(service, task)) this.#beginWith(service, task);
        if (slice.spent) await slice.yield();
      }
    }
    this.#isBeginning = false;
  }

  /** A removal waits for the services that take over what it removes; they do not wait for the removal. */
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
        this.#options.onError(service, error);
      })
      .finally(() => {
        this.#preparing.delete(service);
        this.#options.onReady();
      });
    this.#preparing.set(service, prepared);
  }

  /** @param letsGo nothing that it had is to be kept for another service. */
  async #prepare(service: string, letsGo: boolean): Promise<Generator<number, unknown>> {
    const { model, families, onViews } = this.#options;
    const slice = new TimeSlice();
    const all: Prepared[] = [];
    for (const updates of families) {
      const views: ServicePortView[] = [];
      for (const view of model.eachView(updates.family, service)) {
        views.push(view);
        if (slice.spent) await slice.yield();
      }
      onViews(updates.family, service, views);
      all.push({ updates, views, slots: await updates.prepare(service, views) });
      slice.begin();
    }
    return this.#pieces(service, all, letsGo);
  }

  *#pieces(service: string, prepared: readonly Prepared[], letsGo: boolean): Generator<number, void> {
    for (const { updates, views, slots } of prepared) {
      yield* updates.updateInPieces(service, views, {
        prepared: slots,
        isCurrent: (view) => this.#isCurrent(updates.family, service, view),
        mayGo: (view) => letsGo || this.#mayGo(updates.family, service, view),
      });
    }
  }
}

/** The view's addresses and its node port (address ""), each with the port there. */
function* addressesOf({
  clusterIP,
  externalIPs,
  loadBalancerIPs,
  port,
  nodePort,
}: ServicePortView): Generator<readonly [address: string, port: number], void> {
  if (clusterIP !== undefined) yield [clusterIP, port];
  for (const address of externalIPs) yield [address, port];
  for (const address of loadBalancerIPs) yield [address, port];
  if (nodePort !== 0) yield ["", nodePort];
}

/**
 * One service's work must not delay another's change. A service with many elements is therefore updated in pieces, each written by a transaction of its own; changes of
 * other services go in between, and several large services take turns.
 *
 *     dirty ─→ waiting ─→ preparing (views, slots: beside the writes) ─→ ready ─→ in pieces, one a write ─→ done
 *
 * What is in force in between is right for packets: see FamilyRuleset.updateInPieces. An object that changes meanwhile is taken up when its update is through.
 */
import { TimeSlice } from "../base/time-slice.js";
import type { SlottedPort } from "../balance/index.js";
import type { ServiceModel } from "../model/index.js";
import type { IpFamily, ServicePortView } from "../model/types.js";
import type { FamilyProxier } from "./family.js";

/** Some 20 to 40 ms of the kernel's time. */
const PIECE_ELEMENTS = 8192;
/** Slices of the event loop that one write may spend on them, some 4 ms each: an unchanged port takes time, too. */
const PIECE_SLICES = 8;

export interface LargeUpdatesOptions {
  readonly model: Pick<ServiceModel, "eachView" | "sizeOf" | "ownerOf" | "asksForBalance">;
  readonly families: readonly Pick<FamilyProxier, "family" | "prepare" | "updateInPieces" | "sizeOf" | "viewsOf">[];
  /** These are the views that the service is going to have. */
  readonly onViews: (family: IpFamily, service: string, views: readonly ServicePortView[]) => void;
  readonly onError: (service: string, error: unknown) => void;
  /** There is something to write. */
  readonly onReady: () => void;
  /** Elements that one write is about, beside those of other services; a service with more is updated in pieces. Default 8,192. */
  readonly pieceElements?: number;
}

/** An update that is through: with the next write it is in force. */
export interface Updated {
  readonly service: string;
  /** When its change came, ms of the caller's clock. */
  readonly since: number;
}

interface Job extends Updated {
  readonly pieces: Generator<number, unknown>;
}

export class LargeUpdates {
  readonly #options: LargeUpdatesOptions;
  /** With the time at which their changes came: services that are dirty, and not looked at yet. */
  readonly #waiting = new Map<string, number>();
  readonly #preparing = new Map<string, Promise<void>>();
  readonly #ready: Job[] = [];

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

  /** Resolves when there is a piece to be written, or nothing left to do. */
  async settled(): Promise<void> {
    while (!this.ready && this.#preparing.size > 0) await Promise.race(this.#preparing.values());
  }

  /** Takes on a service that changed, if it is large, or waits for one that is. Returns false if it does not. */
  take(service: string, since: number): boolean {
    if (!this.#has(service) && !this.isLarge(service) && !this.#leavesToLarge(service)) return false;
    if (!this.#waiting.has(service)) this.#waiting.set(service, since);
    this.#begin();
    return true;
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
        updated.push(job);
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

  /** All of one service, in slices of the event loop: for a time at which nothing is to be written in between. */
  async update(service: string): Promise<void> {
    const slice = new TimeSlice();
    const pieces = await this.#prepare(service);
    while (pieces.next().done !== true) if (slice.spent) await slice.yield();
  }

  #has(service: string): boolean {
    return (
      this.#waiting.has(service) || this.#preparing.has(service) || this.#ready.some((job) => job.service === service)
    );
  }

  /** Slots take long to assign. */
  isLarge(service: string): boolean {
    const { model, families, pieceElements = PIECE_ELEMENTS } = this.#options;
    if (model.asksForBalance(service)) return true;
    return families.some(
      (one) => model.sizeOf(one.family, service) > pieceElements || one.sizeOf(service) > pieceElements,
    );
  }

  /** An address of the service passes to one that is updated here: it stays until that has it. */
  #leavesToLarge(service: string): boolean {
    if (this.size === 0) return false;
    const { model, families } = this.#options;
    return families.some((one) => {
      const leaves = (address: string, { protocol, port, nodePort }: ServicePortView): boolean => {
        const owner = model.ownerOf(one.family, address, protocol, address === "" ? nodePort : port);
        return owner !== undefined && owner !== service && this.#has(owner);
      };
      for (const view of one.viewsOf(service)) {
        const { clusterIP, externalIPs, loadBalancerIPs, nodePort } = view;
        const addresses = [...(clusterIP === undefined ? [] : [clusterIP]), ...externalIPs, ...loadBalancerIPs];
        if (addresses.some((address) => leaves(address, view)) || (nodePort !== 0 && leaves("", view))) return true;
      }
      return false;
    });
  }

  /** Begins with services that wait, but for those whose update before is not through. */
  #begin(): void {
    for (const [service, since] of this.#waiting) {
      if (this.#preparing.has(service) || this.#ready.some((job) => job.service === service)) continue;
      this.#waiting.delete(service);
      const prepared = this.#prepare(service)
        .then((pieces) => void this.#ready.push({ service, since, pieces }))
        .catch((error: unknown) => this.#options.onError(service, error))
        .finally(() => {
          this.#preparing.delete(service);
          this.#options.onReady();
        });
      this.#preparing.set(service, prepared);
    }
  }

  async #prepare(service: string): Promise<Generator<number, unknown>> {
    const { model, families, onViews } = this.#options;
    const slice = new TimeSlice();
    const all: (readonly [number, ServicePortView[], readonly SlottedPort[] | undefined])[] = [];
    for (const [i, one] of families.entries()) {
      const views: ServicePortView[] = [];
      for (const view of model.eachView(one.family, service)) {
        views.push(view);
        if (slice.spent) await slice.yield();
      }
      onViews(one.family, service, views);
      all.push([i, views, await one.prepare(service, views)]);
      slice.begin();
    }
    return (function* () {
      for (const [i, views, prepared] of all) yield* families[i].updateInPieces(service, views, prepared);
    })();
  }
}

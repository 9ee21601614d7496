/**
 * Updates services in pieces. Large services, and many services that change at once, are written a few pieces at a time, so that
 * their work does not delay another's change. Changes of other services are written in between, and services take turns.
 *
 *     dirty ─→ waiting ─→ begun: views, slots, and elements in pieces, some each write ─→ done
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
import type { FamilyRuleset } from "../ruleset/family-ruleset.js";
import type { Quarantine } from "./quarantine.js";

/** This takes the kernel some 20 to 40 ms. */
const PIECE_ELEMENTS = 8192;
/**
 * Maximum number of event-loop slices, some 4 ms each, that one write may spend on pieces. Views, slots and unchanged ports take
 * time, too.
 */
const PIECE_SLICES = 8;

interface LargeUpdatesFamily {
  readonly family: IpFamily;
  readonly quarantine: Pick<Quarantine, "updateInPieces">;
  readonly ruleset: Pick<FamilyRuleset, "sizeOf" | "state">;
}

interface LargeUpdatesOptions {
  readonly model: Pick<ServiceModel, "eachView" | "sizeOf" | "ownerOf" | "askedFor" | "isDirty">;
  readonly families: readonly LargeUpdatesFamily[];
  /** Called with the views that the service is going to have. */
  readonly onViews: (family: IpFamily, service: string, views: readonly ServicePortView[]) => void;
  readonly onError: (service: string, error: unknown) => void;
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
  isRest: boolean;
  /** Set when the update has begun. */
  pieces?: Pieces;
  /** When a change came that the update does not contain. */
  again?: number;
  /** Whether the service keeps an address until the new owner has been updated. */
  keeps?: boolean;
}

/** Yields the number of elements of each piece. Undefined is a pause. */
type Pieces = Generator<number | undefined, void>;

/** A complete update. It is active after the next write. */
export interface Updated {
  readonly service: string;
  /** When its change came, ms of the caller's clock. */
  readonly since: number;
}

export class LargeUpdates {
  /** In the order of their turns. */
  readonly #tasks = new Map<string, Task>();

  constructor(private readonly options: LargeUpdatesOptions) {}

  /** Number of incomplete updates. */
  get size(): number {
    return this.#tasks.size;
  }

  /**
   * Returns the time of the oldest change whose update is incomplete, in ms of the caller's clock, or undefined if
   * there is none.
   */
  get oldest(): number | undefined {
    let oldest = Infinity;
    for (const { since, isRest, again = Infinity } of this.#tasks.values())
      oldest = Math.min(oldest, isRest ? again : since);
    return oldest === Infinity ? undefined : oldest;
  }

  /**
   * Accepts the changed services that are large, too many for one write, or wait for one of these. Returns the others.
   * Calls must not overlap.
   */
  async accept(services: readonly string[], since: number): Promise<string[]> {
    const slice = new TimeSlice();
    const others = new Set<string>();
    let room = this.#pieceElements;
    for (const service of services) {
      const isOurs = this.has(service) || this.#isLarge(service) || (room -= this.#sizeOf(service)) < 0;
      if (isOurs) this.#add(service, since);
      else others.add(service);
      if (slice.spent) await slice.yield();
    }
    if (this.size === 0) return [...others];
    // An address that moves to a service updated here must stay until that service has it. Its former owner is then updated
    // here, too, and so is the former owner of an address that moves to that one.
    const former = new Map<string, string[]>();
    for (const service of others) {
      for (const owner of this.#successors(service)) {
        const those = former.get(owner) ?? [];
        former.set(owner, those);
        those.push(service);
      }
      if (slice.spent) await slice.yield();
    }
    const owners = [...former.keys()].filter((owner) => this.has(owner));
    for (const owner of owners) {
      for (const service of former.get(owner) ?? []) {
        if (!others.delete(service)) continue;
        this.#add(service, since);
        owners.push(service);
      }
    }
    return [...others];
  }

  #add(service: string, since: number): void {
    const task = this.#tasks.get(service);
    if (task === undefined) this.#tasks.set(service, { since, isRest: false });
    else if (task.pieces === undefined) task.isRest = false;
    else task.again ??= since;
  }

  /** Updates some elements to match the objects. Returns the completed updates. */
  async advance(): Promise<Updated[]> {
    const updated: Updated[] = [];
    const slice = new TimeSlice();
    let [left, slices, turns] = [this.#pieceElements, 0, this.#tasks.size];
    for (const [service, task] of this.#tasks) {
      if (turns-- === 0 || left <= 0 || slices === PIECE_SLICES) break;
      if (task.pieces === undefined && !this.#mustWait(service, task)) task.pieces = this.#pieces(service, task.isRest);
      let isDone = false;
      while (task.pieces !== undefined && !isDone && left > 0 && slices < PIECE_SLICES) {
        const piece = this.#next(service, task.pieces);
        isDone = piece.done === true;
        left -= piece.value ?? 0;
        if (!slice.spent) continue;
        slices++;
        await slice.yield();
      }
      // One that is not done, or must wait, comes last.
      this.#tasks.delete(service);
      if (!isDone) this.#tasks.set(service, task);
      else if (task.again !== undefined) this.#tasks.set(service, { since: task.again, isRest: false });
      else if (task.keeps === true) this.#tasks.set(service, { since: task.since, isRest: true });
      if (isDone && !task.isRest) updated.push({ service, since: task.since });
    }
    return updated;
  }

  #next(service: string, pieces: Pieces): IteratorResult<number | undefined, void> {
    try {
      return pieces.next();
    } catch (error) {
      this.options.onError(service, error);
      return { done: true, value: undefined };
    }
  }

  /** Updates the whole service in slices of the event loop. Use it only if nothing must be written in between. */
  async update(service: string): Promise<void> {
    const slice = new TimeSlice();
    const pieces = this.#pieces(service, true);
    while (this.#next(service, pieces).done !== true) if (slice.spent) await slice.yield();
  }

  /** Whether an update of the service is incomplete. */
  has(service: string): boolean {
    return this.#tasks.has(service);
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

  /** The services to which addresses of the service move. */
  #successors(service: string): Set<string> {
    const { model, families } = this.options;
    const owners = new Set<string>();
    for (const { family, ruleset } of families) {
      for (const { view } of ruleset.state(service)) {
        for (const address of addressesOf(family, view)) {
          const owner = model.ownerOf(address);
          if (owner !== undefined && owner !== service) owners.add(owner);
        }
      }
    }
    return owners;
  }

  /** Whether the service still has all addresses of the view. If not, it is dirty and another update follows. */
  #isCurrent(family: IpFamily, service: string, view: ServicePortView): boolean {
    if (this.#tasks.get(service)?.again === undefined && !this.options.model.isDirty(service)) return true;
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
      if (!this.#takes(owner, true)) continue;
      this.#tasks.get(service)!.keeps = true;
      return false;
    }
    return true;
  }

  /**
   * Whether a service that takes over one of its addresses is being updated. A removal (`isRest`) also waits for those that have
   * not started; they do not wait for the removal.
   */
  #mustWait(service: string, { isRest }: Task): boolean {
    for (const owner of this.#successors(service)) if (this.#takes(owner, isRest)) return true;
    return false;
  }

  /** Whether the service is being updated, or, with `orWaits`, is going to be. */
  #takes(owner: string, orWaits: boolean): boolean {
    const task = this.#tasks.get(owner);
    if (task === undefined) return false;
    if (task.isRest) return orWaits && task.again !== undefined;
    return orWaits || task.pieces !== undefined;
  }

  /** @param letsGo whether nothing must be kept for another service. */
  *#pieces(service: string, letsGo: boolean): Pieces {
    const { model, families, onViews } = this.options;
    for (const { family, quarantine } of families) {
      const views: ServicePortView[] = [];
      for (const view of model.eachView(family, service)) {
        if (view !== undefined) views.push(view);
        yield undefined;
      }
      onViews(family, service, views);
      yield* quarantine.updateInPieces(service, views, {
        isCurrent: (view) => this.#isCurrent(family, service, view),
        mayGo: (view) => letsGo || this.#mayGo(family, service, view),
      });
    }
  }
}

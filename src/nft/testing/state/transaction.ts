import { IntervalGuard } from "./intervals.js";
import { tableId, type ElementState, type NamespaceState, type SetState, type TableState } from "./state.js";
import type { ChangeEvent } from "../../kernel/kernel.js";

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** The changes of one batch so far, and how to undo them. */
export class Transaction {
  readonly events: Mutable<ChangeEvent>[] = [];
  readonly setsById = new Map<number, SetState>();
  readonly newAnonymous: { table: TableState; set: SetState }[] = [];
  private readonly undoes: (() => void)[] = [];
  /** New timeouts of existing elements: the kernel applies them at the commit, and compares with the old ones until then. */
  readonly renewals: { element: ElementState; timeout: bigint | undefined; expiresAt: number }[] = [];
  /** Sets that rules stopped using in this batch: they stay bound until it ends (nf_tables_unbind_set). */
  readonly unbound = new Set<SetState>();
  /** Tables whose dormancy was changed (__NFT_TABLE_F_UPDATE): they get no new base chains. */
  readonly toggled = new Set<TableState>();
  /** Elements that were deleted one by one or flushed. */
  readonly deleted: { readonly set: SetState; readonly element: ElementState }[] = [];
  /** Steps to run after the commit. */
  private readonly afterwards: (() => void)[] = [];
  private readonly guards = new Map<SetState, IntervalGuard>();
  private readonly elementEvents = new Map<string, Mutable<ChangeEvent>>();
  constructor(
    readonly namespace: NamespaceState,
    readonly portId: number,
    readonly now: number,
  ) {}

  /** Makes a change and records how to undo it. */
  change(apply: () => void, undo: () => void): void {
    apply();
    this.undoes.push(undo);
  }

  /** Defers a step until after the commit. */
  later(step: () => void): void {
    this.afterwards.push(step);
  }

  insertElement(set: SetState, element: ElementState): void {
    this.change(
      () => set.insert(element),
      () => set.remove(element),
    );
  }

  removeElement(set: SetState, element: ElementState): void {
    this.change(
      () => set.remove(element),
      () => set.insert(element),
    );
  }

  /** Removes an element by request. */
  deleteElement(set: SetState, element: ElementState): void {
    this.removeElement(set, element);
    this.deleted.push({ set, element });
  }

  commit(): void {
    for (const { element, ...renewed } of this.renewals) Object.assign(element, renewed);
    for (const step of this.afterwards) step();
  }

  rollback(): void {
    for (let undo = this.undoes.pop(); undo !== undefined; undo = this.undoes.pop()) undo();
  }

  note(
    action: ChangeEvent["action"],
    kind: ChangeEvent["kind"],
    table: TableState,
    name?: string,
    handle?: bigint,
  ): void {
    const event: Mutable<ChangeEvent> = { action, kind, ...table.ref };
    if (name !== undefined) event.name = name;
    if (handle !== undefined) event.handle = handle;
    this.events.push(event);
  }

  /** Records one event for all elements of a set that a batch adds, and one for those that it deletes. */
  noteElements(action: ChangeEvent["action"], table: TableState, set: SetState, count: number): void {
    if (count === 0) return;
    const { family, table: name } = table.ref;
    const id = `${action} ${tableId(table.ref)}\0${set.name}`;
    const before = this.elementEvents.get(id);
    if (before !== undefined) {
      before.count = (before.count ?? 0) + count;
      return;
    }
    const event: Mutable<ChangeEvent> = { action, kind: "elements", family, table: name, name: set.name, count };
    this.elementEvents.set(id, event);
    this.events.push(event);
  }

  /** The state of an interval set that lasts for this batch. */
  guard(set: SetState): IntervalGuard {
    const known = this.guards.get(set);
    if (known !== undefined) return known;
    const guard = new IntervalGuard(set);
    this.guards.set(set, guard);
    return guard;
  }
}

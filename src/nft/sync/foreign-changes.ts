import type { ChangeBatch, ChangeEvent, Kernel } from "../kernel/kernel.js";
import { hasTargets } from "../language/schema.js";
import { describeChanges } from "./describe-changes.js";
import type { ObservedTable } from "./observed-table.js";

/** Notices that other processes changed the table: by events while a TableWatch listens, otherwise by the ruleset's generation. */
export class ForeignChanges {
  readonly #kernel: Kernel;
  readonly #observed: ObservedTable;
  #listening = false;
  /** The ruleset's generation at the last `unreported`, and the transactions known then that are no reason to read the table. */
  #lastSeen: { readonly id: number; readonly known: number } | undefined;
  /** The transactions of our own that changed the ruleset. */
  #own = 0;

  constructor(kernel: Kernel, observed: ObservedTable) {
    this.#kernel = kernel;
    this.#observed = observed;
  }

  /** From now on, `notice` gets every transaction of the namespace (true), or no longer gets them (false). */
  listening(listening: boolean): void {
    this.#listening = listening;
    this.#lastSeen = undefined;
    this.#observed.announcements.listen(listening);
  }

  /**
   * Notes a transaction that events reported. After a change by another process, the next apply reads the changed parts and repairs them.
   * @returns the changes, in words. Empty if they are ours, concern another table, or were seen by a read.
   */
  notice({ generation, portId, events }: ChangeBatch): string[] {
    const { announcements, invalidations, ref } = this.#observed;
    if (portId === this.#kernel.portId) {
      announcements.add(generation, false);
      return [];
    }
    const ours = events.filter(
      (event) => event.family === ref.family && event.table === ref.table && !this.#isPackets(event),
    );
    announcements.add(generation, ours.length > 0);
    if (ours.length === 0) return [];
    const named = ours.flatMap(({ kind, name }) => (kind === "elements" || kind === "set" ? (name ?? []) : []));
    // If a chain was renamed, elements that lead to it now name another chain.
    if (ours.some(({ kind }) => kind === "chain")) named.push(...this.#verdictMaps());
    const scope = ours.some(({ kind }) => kind === "table") ? {} : { sets: named };
    const reason = "another process changed the table";
    const added = invalidations.add({ cause: "foreign", reason, generation, ...scope });
    return added ? describeChanges(ours) : [];
  }

  #verdictMaps(): string[] {
    const { sets } = this.#observed.desired;
    return [...sets].flatMap(([name, { spec }]) => (hasTargets(spec) ? name : []));
  }

  /** The elements of dynamic sets belong to packets, even if `nft add element` adds them. */
  #isPackets({ kind, name }: ChangeEvent): boolean {
    return kind === "elements" && name !== undefined && this.#observed.desired.setSpec(name)?.dynamic === true;
  }

  /** Notes that nobody listened for a while, so anything may have changed. Returns false if this was known. */
  lost(reason: string): boolean {
    const { announcements, invalidations } = this.#observed;
    announcements.lost();
    const known = invalidations.has("lost events");
    invalidations.add({ cause: "lost events", reason });
    return !known;
  }

  /** Counts what our own transactions wrote, which is no foreign change. */
  own<Result extends { readonly transactions: number }>(result: Result): Result {
    this.#own += result.transactions;
    return result;
  }

  /**
   * If nobody listens: whether anyone else has committed since the last call, whatever it was.
   * @param everyTable other transactions of our connection count even if they leave our table alone: we have rules in other tables.
   */
  async unreported(everyTable: boolean): Promise<boolean> {
    if (this.#listening) return false;
    const known = this.#own + (everyTable ? 0 : this.#kernel.committed.beside(this.#observed.ref));
    const { id } = await this.#kernel.generation();
    const before = this.#lastSeen;
    this.#lastSeen = { id, known };
    return before !== undefined && ((id - before.id) | 0) !== known - before.known;
  }
}

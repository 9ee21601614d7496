import type { Op, TableRef } from "./kernel.js";

/** Counts the transactions that one connection has committed, in all and by table. */
export class CommitCounts {
  #all = 0;
  readonly #byTable = new Map<string, number>();

  /** Notes a transaction. */
  add(ops: readonly Op[]): void {
    this.#all++;
    for (const table of new Set(ops.map(keyOf))) this.#byTable.set(table, (this.#byTable.get(table) ?? 0) + 1);
  }

  /** Number of transactions that left this table alone. */
  beside(table: TableRef): number {
    return this.#all - (this.#byTable.get(keyOf(table)) ?? 0);
  }
}

function keyOf({ family, table }: TableRef): string {
  return `${family} ${table}`;
}

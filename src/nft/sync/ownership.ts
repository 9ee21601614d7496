import { TableFlag } from "../kernel/constants.js";
import type { Kernel } from "../kernel/kernel.js";
import type { TableOptions } from "./apply-result.js";
import type { ObservedTable } from "./observed-table.js";
import { fateOf, type Quirks, type TableFacts } from "./quirks.js";
import { TableError } from "./results.js";

/** The socket that owns the table in the kernel: ours (TableOptions.own), another program's, or none. */
export class Ownership {
  readonly #kernel: Kernel;
  readonly #observed: ObservedTable;
  readonly #quirks: Quirks;
  readonly #options: Pick<TableOptions, "family" | "name" | "own">;
  #portId: number;

  constructor(kernel: Kernel, observed: ObservedTable, quirks: Quirks, options: TableOptions) {
    this.#kernel = kernel;
    this.#portId = kernel.portId;
    this.#observed = observed;
    this.#quirks = quirks;
    this.#options = options;
  }

  /** The port of our socket when `resolve` was called last. */
  get portId(): number {
    return this.#portId;
  }

  /** Whether this process should own the table, and the kernel supports it. */
  async wanted(): Promise<boolean> {
    return this.#options.own === true && (await this.#quirks.canOwnTables());
  }

  /** Notes whether to own the table, and updates the owner if our socket was replaced. */
  async resolve(): Promise<void> {
    const view = this.#observed;
    if (this.#options.own === true && !view.own) view.own = await this.wanted();
    const { portId } = this.#kernel;
    if (portId === this.#portId) return;
    // The table of the former socket has no owner now.
    const { table } = view.state;
    if (table !== undefined && table.owner === this.#portId) {
      view.state.table = { flags: table.flags & ~TableFlag.owner };
    }
    this.#portId = portId;
  }

  /** If another program owned the table at the last read: throws TableError if it still does. This costs less than a read. */
  async recheck(): Promise<void> {
    if (!this.#isTheirs(this.#observed.state.table)) return;
    this.check(await this.present());
    this.#observed.invalidations.add({ cause: "asked", reason: "another program owned the table", sets: [] });
  }

  /** Asks the kernel for the table. Undefined if there is none. */
  async present(): Promise<TableFacts | undefined> {
    const { family, name } = this.#options;
    return (await this.#kernel.tables(family)).find(({ table }) => table === name);
  }

  /** Whether another program owns the table now. Only asks the kernel for its list of tables. */
  async isTheirs(): Promise<boolean> {
    return this.#isTheirs(await this.present());
  }

  /** Throws TableError if another program owns the table. */
  check(table: TableFacts | undefined): void {
    if (!this.#isTheirs(table)) return;
    const { family, name } = this.#options;
    const owner = table?.owner;
    const message =
      `table ${family} ${name} is owned by another program (netlink port ${owner}), so no one else can change it until that program ends. ` +
      `\`nft list table ${family} ${name}\` shows its name`;
    throw new TableError("no-permission", message, [], { owner });
  }

  #isTheirs(table: TableFacts | undefined): boolean {
    return table !== undefined && fateOf(table, this.#observed.own, this.#kernel.portId) === "theirs";
  }
}

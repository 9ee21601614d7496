import type { TableRef, Verdict } from "../kernel/types.js";
import { renderTable } from "./rules/render.js";
import type { Table } from "./table.js";
import { checkComment, checkName } from "./rules/text.js";
import type { ChainSpec, ElementSet, SetSpec, TableOptions } from "./rules/types.js";
import { WantedState } from "./sync/desired.js";

/** What is said of a table's content, whoever brings it somewhere: to the kernel (`Table`) or to text (`DeclaredTable`). */
export type TableDeclarations = Pick<Table, "chain" | "removeChain" | "set" | "removeSet" | "verdictId">;

/** A table that is declared and printed, and that no kernel ever sees. The methods are those of `Table`. */
export class DeclaredTable implements TableDeclarations {
  readonly ref: TableRef;
  readonly #comment: { readonly comment?: string };
  readonly #desired: WantedState;

  constructor({ family, name, comment }: Pick<TableOptions, "family" | "name" | "comment">) {
    checkName("table", name);
    checkComment(`table ${name}`, comment);
    this.ref = { family, table: name };
    this.#comment = comment === undefined ? {} : { comment };
    this.#desired = new WantedState(name, family);
  }

  chain(spec: ChainSpec): void {
    this.#desired.chain(spec);
  }

  removeChain(name: string): void {
    this.#desired.removeChain(name);
  }

  set(spec: SetSpec): ElementSet {
    return this.#desired.set(spec);
  }

  removeSet(name: string): void {
    this.#desired.removeSet(name);
  }

  verdictId(verdict: Verdict): number {
    return this.#desired.verdicts.id(verdict);
  }

  /** As `Table.render`. */
  render(): string {
    const { sets, chains, verdicts } = this.#desired;
    return renderTable({
      ...this.ref,
      ...this.#comment,
      sets: [...sets.values()].map((record) => record.elements),
      chains: [...chains.values()].map((chain) => chain.spec),
      verdicts,
    });
  }
}

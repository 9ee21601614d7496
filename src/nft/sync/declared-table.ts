import type { TableRef } from "../kernel/kernel.js";
import { renderTable } from "./print.js";
import { checkComment, checkName } from "../bytes/names-and-comments.js";
import type { KeptSpec, ListedElements } from "../elements/tracked-elements.js";
import type { Target } from "../elements/verdict-registry.js";
import type { ObjectName, ObjectSpec } from "../language/object-kinds.js";
import type { ChainSpec } from "../language/rule.js";
import type { TableOptions } from "./apply-result.js";
import { DesiredState } from "./desired-state.js";

/** Declarations of a table's content, for the kernel (`Table`) or as text (`DeclaredTable`). */
export type TableDeclarations = Pick<DeclaredTable, "chain" | "removeChain" | "set" | "removeSet" | "verdictId">;

/** A table that is declared and printed only: no kernel ever sees it. */
export class DeclaredTable {
  readonly ref: TableRef;
  protected readonly desired: DesiredState;
  readonly #comment: string | undefined;

  constructor({ family, name, comment, clock }: Pick<TableOptions, "family" | "name" | "comment" | "clock">) {
    checkName("table", name);
    checkComment(`table ${name}`, comment);
    this.ref = { family, table: name };
    this.#comment = comment;
    this.desired = new DesiredState(this.ref, clock && (() => clock.now()));
  }

  /**
   * Declares the chain with exactly these rules. Throws RangeError if a rule cannot be expressed. In an `inet` table, declare the sets that the rules
   * look up first.
   */
  chain(spec: ChainSpec): void {
    this.desired.chain(spec);
  }

  removeChain(name: string): void {
    this.desired.removeChain(name);
  }

  /**
   * Declares the set or map. If the name is declared already, returns the same elements. Changing the width of the key or data, or whether it is a
   * set of intervals, discards the former elements.
   */
  set(spec: KeptSpec): ListedElements {
    return this.desired.set(spec);
  }

  removeSet(name: string): void {
    this.desired.removeSet(name);
  }

  /** Declares a named object. Throws RangeError if the kernel or nft cannot hold it. */
  object(spec: ObjectSpec): void {
    this.desired.object(spec);
  }

  removeObject(object: ObjectName): void {
    this.desired.removeObject(object);
  }

  /**
   * Number that stands for the verdict or named object in the data of this table's maps, until its chain or object is neither declared nor in the
   * kernel.
   */
  verdictId(verdict: Target): number {
    return this.desired.verdicts.id(verdict);
  }

  /** Throws TableError "busy" while `apply()` or `load()` runs. */
  checkChangeable(): void {
    this.desired.checkChangeable();
  }

  /** Renders the desired table as text that `nft -f` (>= 1.0.6) loads in place of the existing one. */
  render(): string {
    return renderTable(this.ref, this.#comment, this.desired);
  }
}

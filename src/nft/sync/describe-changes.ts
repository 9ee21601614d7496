import { counted } from "../../base/counted.js";
import type { ChangeEvent } from "../kernel/kernel.js";

/** The description of a transaction that deletes the table. */
export const TABLE_DELETED = "table deleted";

const WORD = { new: "added", delete: "deleted" } as const;

/** Describes one transaction for people: "rule of chain services deleted", "3 elements of set x added". */
export function describeChanges(events: readonly ChangeEvent[]): string[] {
  // Deleting a table deletes all its content.
  const gone = events.findLastIndex(({ action, kind }) => action === "delete" && kind === "table");
  return events.slice(Math.max(gone, 0)).map(describeChange);
}

/** Describes changes to other programs' tables, each with the table's name. */
export function describeForeignChanges(events: readonly ChangeEvent[]): string[] {
  return events.map((event) => {
    if (event.kind === "table") return `table ${event.family} ${event.table} ${WORD[event.action]}`;
    return `${describeChange(event)} in table ${event.family} ${event.table}`;
  });
}

function describeChange({ action, kind, name, count }: ChangeEvent): string {
  switch (kind) {
    case "table":
      return action === "new" ? "table added, or its flags changed" : TABLE_DELETED;
    case "chain":
      return `chain ${name} ${action === "new" ? "added or changed" : "deleted"}`;
    case "rule":
      return `rule of chain ${name} ${WORD[action]}`;
    case "elements":
      return `${count === undefined ? "elements" : counted(count, "element")} of set ${name} ${WORD[action]}`;
    case "set":
    case "object":
    case "flowtable":
      return `${kind} ${name} ${WORD[action]}`;
  }
}

/** Counts entries per client, destination or service. */
import { type Column, tableLines } from "../../text/text-table.js";
import { terminalWidth } from "../../text/terminal.js";
import type { ConntrackEntry } from "../../../nft/conntrack/conntrack-table.js";
import type { EntryNames } from "./service-snapshot.js";
import type { Format } from "./entry-columns.js";

type CountedBy = "source" | "destination" | "service";

export class EntryCounts {
  readonly #counts = new Map<string, number>();

  constructor(private readonly by: CountedBy) {}

  add({ original }: ConntrackEntry, { service = "-" }: EntryNames): void {
    const key = { source: original.source, destination: original.destination, service }[this.by];
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }

  /** Returns lines, highest counts first, and equal counts sorted by name. In JSON, each line is an object. */
  lines(format: Format, headers: boolean): string[] {
    const by = this.by;
    const rows = [...this.#counts].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1));
    if (format === "json") return rows.map(([key, entries]) => JSON.stringify({ [by]: key, entries }));
    const columns: readonly Column<(typeof rows)[number]>[] = [
      { title: "ENTRIES", text: ([, entries]) => String(entries) },
      { title: by.toUpperCase(), text: ([key]) => key },
    ];
    return tableLines(columns, rows, { headers, width: terminalWidth() });
  }
}

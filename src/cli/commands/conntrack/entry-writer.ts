import type { ConntrackEntry } from "../../../nft/conntrack/conntrack-table.js";
import { Table } from "../../text/text-table.js";
import { entryColumns, type Extra, type Format, jsonOf } from "./entry-columns.js";
import type { Output } from "./output.js";
import type { EntryNames } from "./service-snapshot.js";

/** Number of rows that decide the layout. Later rows are printed as they come. */
const SAMPLE = 200;

interface EntryWriterOptions {
  readonly format: Format;
  /** Whether services are known, and so have columns. */
  readonly named: boolean;
  readonly headers: boolean;
  /** Maximum length of a line. Undefined: unlimited. */
  readonly width: number | undefined;
}

/** Writes entries as lines of a table, or as JSON objects. */
export class EntryWriter {
  #table: Table<{ entry: ConntrackEntry; names: EntryNames; extra: readonly string[] }> | undefined;

  constructor(
    private readonly output: Output,
    private readonly options: EntryWriterOptions,
  ) {}

  /** Begins a table, even if no entry follows. @param first titles of additional columns. */
  head(first: readonly string[] = []): void {
    const { format, named, headers, width } = this.options;
    if (format === "json") return;
    const options = { headers, wide: format === "wide", width, sample: SAMPLE };
    this.#table = new Table(entryColumns(format, named, first), options);
  }

  async entry(entry: ConntrackEntry, names: EntryNames, extra?: Extra): Promise<void> {
    const lines =
      this.#table === undefined
        ? [JSON.stringify({ ...extra?.fields, ...jsonOf(entry, names) })]
        : this.#table.add({ entry, names, extra: extra?.cells ?? [] });
    for (const line of lines) await this.output.line(line);
  }

  /** Resolves when the reader has received everything. */
  async flush(): Promise<void> {
    for (const line of this.#table?.flush() ?? []) await this.output.line(line);
    await this.output.flush();
  }
}

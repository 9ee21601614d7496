/**
 * Lines of entries. On a terminal columns are as wide as what is in them, and no line is longer than the terminal is wide: what
 * does not fit loses its middle. Into a pipe or a file everything goes whole, in columns of one width.
 */
import { printable } from "../../base/printable.js";
import type { ConntrackEntry } from "../../conntrack/table/conntrack-table.js";
import type { EntryFormat, Extra } from "./format.js";
import type { EntryNames } from "./service-snapshot.js";
import type { Output } from "./output.js";

/** Rows whose cells say how wide the columns are to be. */
const SAMPLE = 200;
/** No column gets narrower. */
const NARROWEST = 8;
const GAP = "  ";

const sum = (numbers: readonly number[]): number => numbers.reduce((total, one) => total + one, 0);

/** The widest give way first until all fit into `room`. */
export function fitWidths(desired: readonly number[], room: number): number[] {
  const widths = [...desired];
  for (let over = sum(widths) - room; over > 0; over--) {
    const widest = Math.max(...widths);
    if (widest <= NARROWEST) break;
    widths[widths.indexOf(widest)]--;
  }
  return widths;
}

/** At most `width` characters: longer text loses its middle, as addresses differ at their ends. */
export function elide(text: string, width: number): string {
  if (text.length <= width) return text;
  const head = Math.floor((width - 1) / 2);
  return `${text.slice(0, head)}…${text.slice(text.length - (width - 1 - head))}`;
}

/** Writes entries in a format. */
export class EntryWriter {
  readonly #output: Output;
  readonly #format: EntryFormat;
  readonly #terminal: number | undefined;
  /** Rows that wait until it is known how wide columns are to be; undefined: it is. */
  #sample: string[][] | undefined = [];
  #widths: readonly number[] = [];
  /** Columns in front. */
  #front = 0;

  /** @param terminal how wide the terminal is, in characters; undefined: it is none, or lines may be as long as they are. */
  constructor(output: Output, format: EntryFormat, terminal: number | undefined) {
    this.#output = output;
    this.#format = format;
    this.#terminal = format.fits ? terminal : undefined;
  }

  /** The line of titles, where the format has one. `first`: titles of the columns in front. */
  async head(first: readonly string[] = []): Promise<void> {
    const cells = this.#format.header(first);
    if (cells !== undefined) await this.#put(cells, first);
  }

  async entry(entry: ConntrackEntry, names: EntryNames, extra?: Extra): Promise<void> {
    const json = this.#format.json(entry, names, extra);
    if (json !== undefined) return this.#output.line(json);
    await this.#put(this.#format.row(entry, names, extra), extra?.cells);
  }

  /** Resolves when the reader has everything. */
  async flush(): Promise<void> {
    await this.#decide();
    await this.#output.flush();
  }

  async #put(texts: readonly string[], extra: readonly string[] = []): Promise<void> {
    const cells = texts.map(printable);
    this.#front = extra.length;
    if (this.#terminal === undefined) return this.#output.line(line(cells, this.#format.widths(extra)));
    if (this.#sample === undefined) return this.#output.line(this.#fitted(cells, this.#terminal));
    this.#sample.push(cells);
    if (this.#sample.length >= SAMPLE) await this.#decide();
  }

  async #decide(): Promise<void> {
    const rows = this.#sample;
    if (rows === undefined || rows.length === 0 || this.#terminal === undefined) return;
    this.#sample = undefined;
    // Titles alone say nothing of what is to come.
    const usual = rows.length > 1 ? [] : this.#format.widths(rows[0].slice(0, this.#front));
    this.#widths = rows[0].map((_, column) =>
      Math.max(usual[column] ?? 0, ...rows.map((cells) => cells[column].length)),
    );
    for (const cells of rows) await this.#output.line(this.#fitted(cells, this.#terminal));
  }

  #fitted(cells: readonly string[], terminal: number): string {
    const room = terminal - GAP.length * (cells.length - 1);
    // A later row may need more than those that were looked at.
    const widths = fitWidths(
      cells.map(({ length }, column) => Math.max(length, this.#widths[column])),
      room,
    );
    const text = line(
      cells.map((cell, column) => elide(cell, widths[column])),
      widths,
    );
    return text.length <= terminal ? text : `${text.slice(0, terminal - 1)}…`;
  }
}

function line(cells: readonly string[], widths: readonly number[]): string {
  return cells
    .map((cell, column) => cell.padEnd(widths[column]))
    .join(GAP)
    .trimEnd();
}

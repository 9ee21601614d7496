/**
 * Writes entries as lines. On a terminal, columns are as wide as their content, and no line is longer than the terminal is wide: cells that
 * do not fit lose their middle. A pipe or a file gets the complete text, in columns of fixed width.
 */
import { printable } from "../../../base/printable.js";
import type { ConntrackEntry } from "../../../conntrack/table/conntrack-table.js";
import type { EntryFormat, Extra } from "./format.js";
import type { EntryNames } from "./service-snapshot.js";
import type { Output } from "./output.js";

/** Number of rows that determine the columns' widths. */
const SAMPLE = 200;
/** Minimum width of a column. */
const NARROWEST = 8;
const GAP = "  ";

const sum = (numbers: readonly number[]): number => numbers.reduce((total, one) => total + one, 0);

/** Reduces the widest columns first, until all fit into `room`. */
function fitWidths(desired: readonly number[], room: number): number[] {
  const widths = [...desired];
  for (let over = sum(widths) - room; over > 0; over--) {
    const widest = Math.max(...widths);
    if (widest <= NARROWEST) break;
    widths[widths.indexOf(widest)]--;
  }
  return widths;
}

/** Shortens text to `width` characters by removing its middle, because addresses differ at their ends. */
function elide(text: string, width: number): string {
  if (text.length <= width) return text;
  const head = Math.floor((width - 1) / 2);
  return `${text.slice(0, head)}…${text.slice(text.length - (width - 1 - head))}`;
}

/** Writes entries in a format. */
export class EntryWriter {
  readonly #output: Output;
  readonly #format: EntryFormat;
  readonly #terminal: number | undefined;
  /** Rows that wait until the columns' widths are known. Undefined afterwards. */
  #sample: string[][] | undefined = [];
  #widths: readonly number[] = [];
  /** Number of additional columns before the entry. */
  #front = 0;

  /** @param terminal the terminal's width, in characters. Undefined if there is none, or the width does not matter. */
  constructor(output: Output, format: EntryFormat, terminal: number | undefined) {
    this.#output = output;
    this.#format = format;
    this.#terminal = format.fits ? terminal : undefined;
  }

  /** Writes the titles, if the format has any. `first`: titles of the additional columns. */
  async head(first: readonly string[] = []): Promise<void> {
    const cells = this.#format.header(first);
    if (cells !== undefined) await this.#put(cells, first);
  }

  async entry(entry: ConntrackEntry, names: EntryNames, extra?: Extra): Promise<void> {
    const json = this.#format.json(entry, names, extra);
    if (json !== undefined) return this.#output.line(json);
    await this.#put(this.#format.row(entry, names, extra), extra?.cells);
  }

  /** Resolves when the reader has received everything. */
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
    // Titles alone do not show how wide the entries will be.
    const usual = rows.length > 1 ? [] : this.#format.widths(rows[0].slice(0, this.#front));
    this.#widths = rows[0].map((_, column) =>
      Math.max(usual[column] ?? 0, ...rows.map((cells) => cells[column].length)),
    );
    for (const cells of rows) await this.#output.line(this.#fitted(cells, this.#terminal));
  }

  #fitted(cells: readonly string[], terminal: number): string {
    const room = terminal - GAP.length * (cells.length - 1);
    // A later row may be wider than the first ones.
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

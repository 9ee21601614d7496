/** Tables for people: aligned columns that fit the terminal. A pipe gets complete texts. */
import { printable } from "../../base/printable.js";

export interface Column<T> {
  readonly title: string;
  /** Returns the cell, or "" if there is nothing to show. */
  text(item: T): string;
  /** Columns with the lowest number are omitted first if lines are too long. Columns without a number always stay. */
  readonly drop?: number;
  /** Omitted if no row has a text. */
  readonly optional?: boolean;
  /** true: shown only in wide tables. false: not in these. Default: shown in all. */
  readonly wide?: boolean;
  /** Width that suffices for most cells, for tables whose rows come one by one. */
  readonly usual?: number;
}

export interface TableOptions {
  /** Whether the titles come first. */
  readonly headers: boolean;
  /** Show all columns with their complete texts, however long the lines are. */
  readonly wide?: boolean;
  /** Maximum length of a line. Undefined: unlimited. */
  readonly width: number | undefined;
  /** Number of rows that decide the layout. Default: all rows. */
  readonly sample?: number;
}

const GAP = "  ";
/** Columns are omitted only if this much of each longer cell does not fit either. */
const ENOUGH = 32;
/** Minimum width of a shortened cell. */
const NARROWEST = 8;

const sum = (numbers: readonly number[]): number => numbers.reduce((total, one) => total + one, 0);

/** Lines of items, as they come. */
export class Table<T> {
  readonly #columns: readonly Column<T>[];
  /** Rows that wait until the layout is decided. Undefined afterwards. */
  #waiting: string[][] | undefined = [];
  #shown: readonly number[] = [];
  #widths: readonly number[] = [];

  constructor(
    columns: readonly Column<T>[],
    private readonly options: TableOptions,
  ) {
    this.#columns = columns.filter(({ wide }) => wide === undefined || wide === (options.wide ?? false));
  }

  /** Returns the lines that can be printed now. */
  add(item: T): string[] {
    const cells = this.#columns.map((column) => printable(column.text(item)));
    if (this.#waiting === undefined) return [this.#line(cells)];
    this.#waiting.push(cells);
    return this.#waiting.length >= (this.options.sample ?? Infinity) ? this.flush() : [];
  }

  /** Decides the layout, unless it is already decided, and returns the waiting lines. */
  flush(): string[] {
    const rows = this.#waiting;
    if (rows === undefined) return [];
    this.#waiting = undefined;
    this.#decide(rows);
    const titles = this.options.headers ? [this.#columns.map(({ title }) => title)] : [];
    return [...titles, ...rows].map((cells) => this.#line(cells));
  }

  #decide(rows: readonly (readonly string[])[]): void {
    const { headers, wide = false, width: limit = Infinity } = this.options;
    const fewRows = rows.length <= 1;
    const widths = this.#columns.map(({ title, usual = 0 }, i) => {
      let width = Math.max(headers ? title.length : 0, fewRows ? usual : 0);
      for (const cells of rows) if (cells[i].length > width) width = cells[i].length;
      return width;
    });
    const isEmpty = (i: number): boolean => rows.every((cells) => cells[i] === "");
    let shown = this.#columns.flatMap(({ optional = false }, i) => (optional && isEmpty(i) ? [] : [i]));
    const over = (): number =>
      sum(shown.map((i) => Math.min(widths[i], ENOUGH))) + GAP.length * (shown.length - 1) - limit;
    const numbers = shown.flatMap((i) => this.#columns[i].drop ?? []).sort((a, b) => a - b);
    for (const least of wide ? [] : numbers) {
      if (over() <= 0) break;
      shown = shown.filter((i) => this.#columns[i].drop !== least);
    }
    this.#shown = shown;
    this.#widths = widths;
  }

  /** Aligns the shown cells. If they are too long for the line, the longest lose their middle. */
  #line(all: readonly string[]): string {
    const { wide = false, width: limit } = this.options;
    const cells = this.#shown.map((i) => all[i] || "-");
    const widths = cells.map((cell, i) => Math.max(cell.length, this.#widths[this.#shown[i]]));
    if (limit !== undefined && !wide) shrink(widths, limit - GAP.length * (cells.length - 1));
    const texts = cells.map((cell, i) => elide(cell, widths[i]).padEnd(widths[i]));
    const line = texts.join(GAP).trimEnd();
    return limit === undefined || wide || line.length <= limit ? line : `${line.slice(0, limit - 1)}…`;
  }
}

/** Returns all lines of a table. */
export function tableLines<T>(columns: readonly Column<T>[], items: Iterable<T>, options: TableOptions): string[] {
  const table = new Table(columns, options);
  for (const item of items) table.add(item);
  return table.flush();
}

/** Reduces the widest columns first, until all fit into `room`. */
function shrink(widths: number[], room: number): void {
  for (let over = sum(widths) - room; over > 0; over--) {
    const widest = Math.max(...widths);
    if (widest <= NARROWEST) return;
    widths[widths.indexOf(widest)]--;
  }
}

/** Shortens text to `width` characters by removing its middle, because addresses and names differ at their ends. */
function elide(text: string, width: number): string {
  if (text.length <= width) return text;
  const head = Math.floor((width - 1) / 2);
  return `${text.slice(0, head)}…${text.slice(text.length - (width - 1 - head))}`;
}

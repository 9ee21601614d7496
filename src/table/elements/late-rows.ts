import { EPOCH, type PackedMap, RowList } from "./packed-map.js";
import { LATER, type RowStates, WANTED } from "./rows.js";

interface Group {
  readonly due: number;
  readonly sequence: number;
  readonly rows: RowList;
}

/** Rows that nobody wants and that stay in the kernel for a while. A row's epoch tells the group that it waits in. */
export class LateRows {
  readonly #map: PackedMap;
  readonly #states: RowStates;
  #groups: Group[] = [];
  #sequence = 0;

  constructor(map: PackedMap, states: RowStates) {
    this.#map = map;
    this.#states = states;
  }

  /** When the next ones are due, on the Table's clock. */
  get next(): number | undefined {
    return this.#groups.length === 0 ? undefined : Math.min(...this.#groups.map((group) => group.due));
  }

  start(rows: RowList, due: number): void {
    const waiting = new RowList();
    const sequence = ++this.#sequence;
    for (let i = 0; i < rows.length; i++) {
      const row = rows.rows[i];
      const state = this.#states.of(row);
      if ((state & (LATER | WANTED)) !== LATER || !this.#states.isInKernel(state)) continue;
      this.#map.words(row)[this.#map.at(row) + EPOCH] = sequence;
      waiting.push(row);
    }
    if (waiting.length > 0) this.#groups.push({ due, sequence, rows: waiting });
  }

  /** Rows whose time has come, and those that `force` picks by the kernel's data (its first word), wait no longer. */
  release(now: number, force?: (kernelData: number) => boolean): void {
    const states = this.#states;
    const waiting: Group[] = [];
    for (const group of this.#groups) {
      const due = group.due <= now;
      if (!due) waiting.push(group);
      if (!due && force === undefined) continue;
      for (let i = 0; i < group.rows.length; i++) {
        const row = group.rows.rows[i];
        const words = this.#map.words(row);
        const epoch = this.#map.at(row) + EPOCH;
        if ((states.of(row) & (LATER | WANTED)) !== LATER || words[epoch] !== group.sequence) continue;
        if (!due && force?.(states.kernelWords(row)[states.kernelAt(row)]) !== true) continue;
        words[epoch] = 0;
        states.release(row);
      }
    }
    this.#groups = waiting;
  }
}

import { type PackedMap, RowList } from "./packed-map.js";
import { KERNEL, LATER, WANTED } from "./row-flags.js";

interface Group {
  readonly due: number;
  readonly sequence: number;
  readonly rows: RowList;
}

/** Rows that nobody wants and that stay in the kernel for a while. A row's epoch tells the group that it waits in. */
export class LateRows {
  readonly #map: PackedMap;
  #groups: Group[] = [];
  #sequence = 0;

  constructor(map: PackedMap) {
    this.#map = map;
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
      if ((this.#map.flags[row] & (LATER | WANTED | KERNEL)) !== (LATER | KERNEL)) continue;
      this.#map.setEpoch(row, sequence);
      waiting.push(row);
    }
    if (waiting.length > 0) this.#groups.push({ due, sequence, rows: waiting });
  }

  /** Rows whose time has come, and those that `force` picks by the kernel's data, wait no longer: `free` is told. */
  release(now: number, free: (row: number) => void, force?: (kernelData: Uint8Array) => boolean): void {
    const map = this.#map;
    const waiting: Group[] = [];
    for (const group of this.#groups) {
      const due = group.due <= now;
      if (!due) waiting.push(group);
      if (!due && force === undefined) continue;
      for (let i = 0; i < group.rows.length; i++) {
        const row = group.rows.rows[i];
        if ((map.flags[row] & (LATER | WANTED)) !== LATER || map.epoch(row) !== group.sequence) continue;
        if (!due && force?.(map.kernelAt(row)) !== true) continue;
        map.flags[row] &= ~LATER;
        map.setEpoch(row, 0);
        free(row);
      }
    }
    this.#groups = waiting;
  }
}

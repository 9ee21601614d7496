/** Plots ten minutes of writes to the kernel as bars, and the waiting time of changes as a line over them. */
import type { VNode } from "preact";
import { counted } from "../../../base/counted.js";
import type { WriteBucket } from "../write-history.js";
import { RANGE_MS } from "./traffic-chart.js";
import { clock, duration } from "./texts.js";

const WIDTH = 600;
const HEIGHT = 80;
/** Minimum top of the scale. With a lower one, a write of a millisecond would look slow. */
const LEAST_MS = 20;

interface Wait {
  readonly at: number;
  readonly ms: number;
}

export class WriteHistoryView {
  readonly #writes = new Map<number, WriteBucket>();
  #waits: Wait[] = [];

  /** @param waitMs age of the oldest pending change. */
  add(now: number, writes: readonly WriteBucket[], waitMs: number): void {
    for (const bucket of writes) this.#writes.set(bucket.at, bucket);
    for (const at of this.#writes.keys()) if (at < now - RANGE_MS) this.#writes.delete(at);
    this.#waits = [...this.#waits.filter(({ at }) => at >= now - RANGE_MS), { at: now, ms: waitMs }];
  }

  get writes(): readonly WriteBucket[] {
    return [...this.#writes.values()];
  }

  get waits(): readonly Wait[] {
    return this.#waits;
  }
}

export function WritePlot({ history, now }: { readonly history: WriteHistoryView; readonly now: number }): VNode {
  const { writes, waits } = history;
  const longest = Math.max(0, ...writes.map(({ longestMs }) => longestMs));
  const top = Math.max(LEAST_MS, longest, ...waits.map(({ ms }) => ms));
  const x = (at: number): string => (WIDTH * (1 - (now - at) / RANGE_MS)).toFixed(1);
  // A logarithmic scale shows writes of 1 ms beside writes of 1 s.
  const height = (ms: number): number => Math.max(1, (HEIGHT - 4) * (Math.log1p(ms) / Math.log1p(top)));
  const count = writes.reduce((sum, { writes: some }) => sum + some, 0);
  const text =
    count === 0
      ? "no write in the last 10 minutes"
      : `${counted(count, "write")} in 10 minutes, the longest ${duration(longest)}`;
  return (
    <figure>
      <figcaption>
        <span class="legend served">longest write in 2 s</span>
        <span class="legend refused">with a failed write</span>
        <span class="legend dropped">oldest pending change</span>
        <span class="quiet" id="writes-summary">
          {text}
        </span>
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={text}>
        {writes.map(({ at, longestMs, failed, writes: some }) => (
          <rect
            key={at}
            class={failed > 0 ? "refused" : "served"}
            x={x(at)}
            y={(HEIGHT - height(longestMs)).toFixed(1)}
            width={3}
            height={height(longestMs).toFixed(1)}
          >
            <title>
              {`${clock(at)}: ${counted(some, "write")}${failed === 0 ? "" : `, ${failed} failed`}, the longest ${duration(longestMs)}`}
            </title>
          </rect>
        ))}
        <polyline
          class="dropped"
          points={waits.map(({ at, ms }) => `${x(at)},${(HEIGHT - height(ms)).toFixed(1)}`).join(" ")}
        />
      </svg>
    </figure>
  );
}

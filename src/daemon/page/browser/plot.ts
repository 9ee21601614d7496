/** Plots ten minutes of writes as bars, and the waiting time of changes as a line over them. */
import { counted } from "../../../base/counted.js";
import type { WriteBucket } from "../write-history.js";
import { duration, makeSvg } from "./dom.js";

const RANGE_MS = 600_000;
const WIDTH = 600;
const HEIGHT = 90;
const FLOOR = HEIGHT - 14;
/** Minimum top of the scale. With a lower one, a write of a millisecond would look slow. */
const LEAST_MS = 20;

interface Wait {
  readonly at: number;
  readonly ms: number;
}

export class Plot {
  readonly #writes = new Map<number, WriteBucket>();
  #waits: Wait[] = [];

  /** @param waitMs age of the oldest pending change. */
  add(now: number, writes: readonly WriteBucket[], waitMs: number): void {
    for (const bucket of writes) this.#writes.set(bucket.at, bucket);
    for (const at of this.#writes.keys()) if (at < now - RANGE_MS) this.#writes.delete(at);
    this.#waits = [...this.#waits.filter(({ at }) => at >= now - RANGE_MS), { at: now, ms: waitMs }];
  }

  draw(now: number): SVGElement {
    const writes = [...this.#writes.values()];
    const top = Math.max(LEAST_MS, ...writes.map(({ longestMs }) => longestMs), ...this.#waits.map(({ ms }) => ms));
    const x = (at: number): number => WIDTH * (1 - (now - at) / RANGE_MS);
    // A logarithmic scale shows writes of 1 ms beside writes of 1 s.
    const y = (ms: number): number => FLOOR - (FLOOR - 4) * (Math.log1p(ms) / Math.log1p(top));
    const svg = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" });
    svg.append(makeSvg("line", { x1: 0, x2: WIDTH, y1: FLOOR, y2: FLOOR }));
    for (const { at, longestMs, failed, writes: count } of writes) {
      const bar = makeSvg("rect", {
        class: failed > 0 ? "failed" : "write",
        x: x(at).toFixed(1),
        y: y(longestMs).toFixed(1),
        width: 3,
        height: Math.max(1, FLOOR - y(longestMs)).toFixed(1),
      });
      const failures = failed === 0 ? "" : `, ${failed} failed`;
      bar.append(
        makeSvg("title", {}, `${clock(at)}: ${counted(count, "write")}${failures}, the longest ${duration(longestMs)}`),
      );
      svg.append(bar);
    }
    const points = this.#waits.map(({ at, ms }) => `${x(at).toFixed(1)},${y(ms).toFixed(1)}`);
    svg.append(makeSvg("polyline", { class: "waiting", points: points.join(" ") }));
    return svg;
  }

  summary(): string {
    const longest = Math.max(0, ...[...this.#writes.values()].map(({ longestMs }) => longestMs));
    const count = [...this.#writes.values()].reduce((sum, { writes }) => sum + writes, 0);
    return count === 0
      ? "none in the last 10 minutes"
      : `${count} in the last 10 minutes, the longest ${duration(longest)}`;
  }
}

/** Formats a time of day in the viewer's time zone. */
export function clock(at: number): string {
  return new Date(at).toLocaleTimeString([], { hourCycle: "h23" });
}

/** Charts of what all services do: new connections, and those refused or dropped, in ten minutes. */
import type { VNode } from "preact";
import type { TrafficSample } from "../page-update.js";
import type { Spark } from "./service-rows.js";
import { SPARK_SAMPLES } from "./service-rows.js";
import { clock, rate } from "./texts.js";

export const RANGE_MS = 600_000;
/** A page that has just been opened shows a part of it, which fills the chart soon. */
const LEAST_RANGE_MS = 60_000;
const WIDTH = 600;
const HEIGHT = 80;
/** Minimum top of a scale, per second. With a lower one, a single connection would look like a peak. */
const LEAST = 1;

interface Series {
  readonly name: string;
  /** Its class, which has its colour. */
  readonly tone: string;
  readonly of: (sample: TrafficSample) => number;
}

const CHARTS: readonly (readonly Series[])[] = [
  [{ name: "new connections", tone: "served", of: ({ connections }) => connections }],
  [
    { name: "refused", tone: "refused", of: ({ refused }) => refused },
    { name: "dropped", tone: "dropped", of: ({ dropped }) => dropped },
  ],
];

interface ChartProps {
  readonly samples: readonly TrafficSample[];
  /** Unix time at the right edge, ms. */
  readonly now: number;
}

export function TrafficCharts(props: ChartProps): VNode {
  return (
    <div class="charts">
      {CHARTS.map((series) => (
        <Chart key={series[0]?.name} series={series} {...props} />
      ))}
    </div>
  );
}

function Chart({ series, samples, now }: ChartProps & { readonly series: readonly Series[] }): VNode {
  const top = Math.max(LEAST, ...series.flatMap(({ of }) => samples.map(of)));
  const range = Math.max(LEAST_RANGE_MS, now - (samples[0]?.at ?? now));
  const x = ({ at }: TrafficSample): string => (WIDTH * (1 - (now - at) / range)).toFixed(1);
  const y = (value: number): string => (HEIGHT - 2 - (HEIGHT - 6) * (value / top)).toFixed(1);
  const last = samples.at(-1);
  const from = samples.length === 0 ? "" : `, since ${clock(now - range)}`;
  const words = series.map(({ name, of }) => `${last === undefined ? "–" : rate(of(last))} ${name} per second`);
  return (
    <figure>
      <figcaption>
        {series.map(({ name, tone, of }) => (
          <span key={name} class={`legend ${tone}`}>
            <b>{last === undefined ? "–" : rate(of(last))}</b> {name}/s
          </span>
        ))}
        <span class="quiet">
          scale 0 to {rate(top)}/s{from}
        </span>
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={words.join(", ")}>
        {series.map(({ name, tone, of }) => (
          <polyline key={name} class={tone} points={samples.map((one) => `${x(one)},${y(of(one))}`).join(" ")} />
        ))}
      </svg>
    </figure>
  );
}

/** The legend of the lines in the rows. */
export function SparklineLegend(): VNode {
  return (
    <span class="quiet legends">
      <span class="legend served">connections</span> <span class="legend refused">refused or dropped</span>, the last{" "}
      {SPARK_SAMPLES} readings
    </span>
  );
}

/** A row's recent connections as an area, and those refused or dropped as a line over it. */
export function Sparkline({ spark }: { readonly spark: Spark | undefined }): VNode | null {
  if (spark === undefined) return null;
  const top = Math.max(LEAST, ...spark.served, ...spark.failed);
  const points = (values: readonly number[]): string =>
    values.map((value, i) => `${(i * 100) / (SPARK_SAMPLES - 1)},${(20 - 18 * (value / top)).toFixed(1)}`).join(" ");
  return (
    <svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true">
      <polygon class="served" points={`0,20 ${points(spark.served)} 100,20`} />
      {spark.failed.some((value) => value > 0) && <polyline class="refused" points={points(spark.failed)} />}
    </svg>
  );
}

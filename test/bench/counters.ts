/**
 * The cost of counting connections: a proxier that counts nothing, services, or also endpoints, in turns, each in its own process and
 * network namespace. Prints medians of the rounds' ratios to counting nothing.
 *
 *   node test/bench/counters.ts [--rounds N] [--services N] [--endpoints N] [--changes N]
 */
import { parseArgs } from "node:util";

import { SERVICE_COUNTERS } from "../../dist/ruleset/service-counters.js";
import { fixed, inNamespace, median } from "./lib.ts";
import type { Measured } from "./measure.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "5" },
    services: { type: "string", default: "10000" },
    endpoints: { type: "string", default: "10" },
    changes: { type: "string", default: "400" },
  },
});

type Figure = (measured: Measured) => number;
const FIGURES: Readonly<Record<string, Figure>> = {
  "load ms": ({ load }) => load.totalMs,
  "load kernel ms": ({ load }) => load.kernelMs,
  "load main thread ms": ({ load }) => load.cpuMs,
  "restart ms": ({ restart }) => restart.totalMs,
  "endpoint replaced ms": ({ replace }) => replace.totalP50Ms,
  "scaled by one ms": ({ scale }) => scale.totalP50Ms,
  "scaled by one, kernel ms": ({ scale }) => scale.kernelP50Ms,
};

const rounds: Record<string, Measured>[] = [];
for (let round = 0; round < Number(values.rounds); round++) {
  process.stderr.write(`round ${round + 1} of ${values.rounds}\n`);
  const shifted = SERVICE_COUNTERS.map((_, i) => SERVICE_COUNTERS[(i + round) % SERVICE_COUNTERS.length]);
  const one: Record<string, Measured> = {};
  for (const counters of shifted) {
    const args = [values.services, values.endpoints, values.changes, counters];
    one[counters] = inNamespace("measure.ts", args, ["--expose-gc"]) as Measured;
  }
  rounds.push(one);
}

console.table(
  Object.entries(FIGURES).map(([figure, of]) => {
    const row: Record<string, string | number> = { figure, off: fixed(median(rounds.map((one) => of(one["off"])))) };
    for (const counters of SERVICE_COUNTERS) {
      if (counters === "off") continue;
      row[counters] = fixed(median(rounds.map((one) => of(one[counters]))));
      row[`${counters} / off`] = fixed(median(rounds.map((one) => of(one[counters]) / of(one["off"]))));
    }
    return row;
  }),
);

/**
 * Variants of rules, measured in turns:
 *
 *   node test/lab/enter.mjs -- node test/bench/first-packets.ts [--rounds N] [--connections N] [--to DESTINATION] [--tcp] [--affinity] [--ipv6] NAME=BY[:SERVICES][~COUNTERS][@pods][!ANNOTATIONS][+EDITS]...
 *
 * BY is a directory with a build of this program, "kube-proxy" or "none". With @pods, and always with "none", connections go to the pods
 * themselves. --affinity gives all services ClientIP affinity; --ipv6 works with ClusterIPs and pods. COUNTERS is the value of --service-counters. ANNOTATIONS are NAME=VALUE,… for nft-proxier.dev/NAME of each service. EDITS is
 * a file for `nft -f` that changes the written rules. The first variant is there twice: the difference of the two is noise. Each round has
 * new namespaces. Prints medians of the rounds' medians. "added" is the difference from the variant named "none", also as a share of what
 * the variant "kube-proxy" adds.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

import { fixed, median } from "./lib.ts";
import {
  DESTINATIONS,
  destroyRoad,
  ENDPOINTS,
  firstPackets,
  makeRoad,
  type Moments,
  type Path,
  serve,
  type Served,
} from "./road.ts";

const FEW = 10;
/** The work that follows a write ends within this time. */
const SETTLE_MS = 300;

interface Variant extends Served {
  readonly name: string;
  readonly to: Path["to"];
}

const { values, positionals } = parseArgs({
  options: {
    rounds: { type: "string", default: "5" },
    connections: { type: "string", default: "3000" },
    to: { type: "string", default: "services" },
    tcp: { type: "boolean", default: false },
    affinity: { type: "boolean", default: false },
    ipv6: { type: "boolean", default: false },
  },
  allowPositionals: true,
});
const destination = destinationOf(values.to);
const protocol = values.tcp ? "TCP" : "UDP";
const family = values.ipv6 ? "ip6" : "ip";

function destinationOf(text: string): Path["to"] {
  const found = DESTINATIONS.find((one) => one === text);
  if (found === undefined) throw new Error(`--to ${text} is none of ${DESTINATIONS.join(", ")}`);
  return found;
}

function parseVariant(text: string): Variant {
  const parts = /^([^=]+)=([^:+@~!]+)(?::(\d+))?(?:~(\w+))?(@pods)?(?:!([^+]+))?(?:\+(.+))?$/.exec(text);
  if (parts === null) throw new Error(`not a variant: ${text}`);
  const [, name, by, services = String(FEW), counters, pods, annotations, edits] = parts;
  const to = pods !== undefined || by === "none" ? "pods" : destination;
  const counting = counters === undefined ? {} : { counters };
  const asking = annotations === undefined ? {} : { annotations };
  return { name, by, to, services: Number(services), ...counting, ...asking, edits };
}

async function round(variants: readonly Variant[], connections: number): Promise<Record<string, Moments>> {
  const paths: Path[] = [];
  for (const [i, variant] of variants.entries()) {
    const road = await makeRoad(`first-${i}`);
    await serve(
      road,
      { ...variant, external: destination !== "services", affinity: values.affinity, family },
      protocol,
    );
    const destinations = variant.to === "pods" ? variant.services * ENDPOINTS : variant.services;
    paths.push({ name: variant.name, road, to: variant.to, destinations });
  }
  await sleep(SETTLE_MS);
  const measured = await firstPackets(paths, connections, protocol, family);
  for (const { road } of paths) await destroyRoad(road);
  return measured;
}

const given = positionals.map(parseVariant);
const variants = [...given, { ...given[0], name: `${given[0].name} again` }];
const rounds: Record<string, Moments>[] = [];
for (let i = 0; i < Number(values.rounds); i++) {
  process.stderr.write(`round ${i + 1} of ${values.rounds}\n`);
  // Creates them in another order each time.
  const shifted = variants.map((_, j) => variants[(i + j) % variants.length]);
  rounds.push(await round(shifted, Number(values.connections)));
}

type Moment = keyof Moments;
/** The median over the rounds of the difference from another variant, or of the time itself; ns. */
function over(name: string, moment: Moment, to?: string): number {
  return median(rounds.map((one) => one[name][moment].p50 - (to === undefined ? 0 : one[to][moment].p50)));
}
const has = (name: string): boolean => given.some((one) => one.name === name);
console.table(
  variants.map(({ name }) => {
    const row: Record<string, string | number> = { variant: name };
    for (const moment of ["first", "second", "answered"] as const) {
      row[moment] = over(name, moment);
      row[`to ${variants[0].name}`.padEnd(moment.length + 4)] = over(name, moment, variants[0].name);
      if (!has("none")) continue;
      row[`${moment}: added`] = over(name, moment, "none");
      if (!has("kube-proxy")) continue;
      row[`${moment}: / kube-proxy's`] = fixed(over(name, moment, "none") / over("kube-proxy", moment, "none"));
    }
    return row;
  }),
);
const lost = rounds.flatMap((one) => Object.values(one)).reduce((sum, { answered }) => sum + answered.lost, 0);
if (lost > 0) console.log(`${lost} lost`);

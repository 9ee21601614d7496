/**
 * The cost of services for packets, on parallel paths that are measured in turns. Prints one line of JSON (`Packets`). Arguments: services
 * connections rounds perRound
 */
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { median, tell } from "./lib.ts";
import {
  CLIENT,
  destroyRoad,
  ENDPOINTS,
  firstPackets,
  makeRoad,
  type Moments,
  type Path,
  type Road,
  serve,
  SERVER_PORT,
  target,
} from "./road.ts";

/**
 * Nodes: few services, the same again, some, many; the first and the third with kube-proxy's rules; and one without a proxier, where
 * connections go to the pods themselves.
 */
const ROADS = ["few", "twin", "some", "many", "kube-proxy few", "kube-proxy some", "none"] as const;
export type RoadName = (typeof ROADS)[number];

/**
 * Connections go to a few services, or to "any" of a road's: data of rarely used services is in no CPU cache, so packets wait for memory.
 * Without a proxier, they go to the pods of that many services.
 */
export type PathName = RoadName | `${RoadName} any` | "none of some";

export interface Packets {
  readonly services: number;
  readonly someServices: number;
  readonly fewServices: number;
  readonly first: Readonly<Partial<Record<PathName, Moments>>>;
  /** TCP connections a second, each with an answer; median of the rounds. */
  readonly connections: Readonly<Partial<Record<RoadName, number>>>;
}

const FEW = 10;
/** As many as in the measurements of kube-proxy's rules (shared/datapath.md); larger tables of kube-proxy's take minutes to write. */
const SOME = 5_000;
const THIS_BUILD = fileURLToPath(new URL("../..", import.meta.url));
/** The work that follows a large write ends within this time. */
const SETTLE_MS = 1000;

const [services, connections, rounds, perRound] = process.argv.slice(2).map(Number);
const many = { some: SOME, many: services, "kube-proxy some": SOME } as const satisfies Partial<
  Record<RoadName, number>
>;
const countOf = (name: RoadName): number => (name in many ? many[name as keyof typeof many] : FEW);
/** Roads for which connection rates are measured. */
const RATED = ["few", "many", "kube-proxy few", "none"] as const satisfies readonly RoadName[];

function by(name: RoadName): string {
  if (name === "none") return name;
  return name.startsWith("kube-proxy") ? "kube-proxy" : THIS_BUILD;
}

function paths(name: RoadName, road: Road): Path[] {
  const path = (label: PathName, destinations: number): Path => {
    return { name: label, road, to: name === "none" ? "pods" : "services", destinations };
  };
  if (name === "none") {
    return [
      path(name, FEW * ENDPOINTS),
      path("none of some", SOME * ENDPOINTS),
      path("none any", services * ENDPOINTS),
    ];
  }
  return countOf(name) === FEW ? [path(name, FEW)] : [path(name, FEW), path(`${name} any`, countOf(name))];
}

/** TCP connections a second, on each road in turn. */
async function connectionRates(roads: ReadonlyMap<RoadName, Road>): Promise<Packets["connections"]> {
  const rates = new Map<RoadName, number[]>(RATED.map((name) => [name, []]));
  for (let round = 0; round < rounds; round++) {
    for (let i = 0; i < RATED.length; i++) {
      const name = RATED[(i + round) % RATED.length];
      const road = roads.get(name)!;
      const [destination, port] = target(name === "none" ? "pods" : "services");
      if (round === 0) await road.pod.agent().serve("tcp", "*", SERVER_PORT, "pod");
      const start = performance.now();
      const outcomes = await road.client
        .agent()
        .probe({ protocol: "tcp", source: CLIENT, destination, port, count: perRound, timeoutMs: 10_000 });
      const seconds = (performance.now() - start) / 1000;
      const answered = outcomes.filter(({ result }) => result === "ok").reduce((sum, { count }) => sum + count, 0);
      if (answered !== perRound) throw new Error(`${name}: ${JSON.stringify(outcomes)}`);
      rates.get(name)!.push(perRound / seconds);
    }
  }
  return Object.fromEntries([...rates].map(([name, all]) => [name, median(all)]));
}

const roads = new Map<RoadName, Road>();
for (const name of ROADS) {
  const road = await makeRoad(`bench-${name.replace(" ", "-")}`);
  await serve(road, { by: by(name), services: countOf(name) }, "UDP");
  roads.set(name, road);
}
await sleep(SETTLE_MS);
const first = await firstPackets(
  [...roads].flatMap(([name, road]) => paths(name, road)),
  connections,
);
for (const name of RATED) await serve(roads.get(name)!, { by: by(name), services: countOf(name) }, "TCP");
await sleep(SETTLE_MS);
const rates = await connectionRates(roads);
for (const road of roads.values()) await destroyRoad(road);
const result: Packets = { services, someServices: SOME, fewServices: FEW, first, connections: rates };
tell(result);

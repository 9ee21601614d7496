/**
 * What services cost packets, on paths that exist side by side and are taken in turns: a client, a node, and a pod behind it that
 * has every endpoint's address. Prints one line of JSON (`Packets`). Arguments: services connections rounds perRound
 */
import { setTimeout as sleep } from "node:timers/promises";
import { buildProgram } from "../lab/build.ts";
import { mustRun, Namespace } from "../lab/namespace.ts";
import { type NftKernel } from "../../dist/kernel/nft-kernel.js";
import { type Proxier } from "../../dist/proxier/proxier.js";
import type { Protocol } from "./cluster.ts";
import { median, tell } from "./lib.ts";
import { feed, makeObjects, newProxier, openKernel } from "./proxier.ts";

export interface Quantiles {
  /** ns. */
  readonly p10: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly count: number;
  readonly lost: number;
}

/** Nodes: few services, the same again, many services, and one without a proxier, where the pod itself is asked. */
export type RoadName = "few" | "twin" | "many" | "none";
const ROADS: readonly RoadName[] = ["few", "twin", "many", "none"];

/**
 * Connections on the road with many services go to a few of them ("many"), as everywhere else, or to any ("many, any"): what is seldom
 * asked for is in no cache of the CPU, and waits for memory. Without a proxier, to the pods of a few services, or to any pod.
 */
export type PathName = RoadName | "many, any" | "none, any";

export interface Packets {
  readonly services: number;
  readonly fewServices: number;
  /** Time of the first packet of a connection. */
  readonly first: Readonly<Record<PathName, Quantiles>>;
  /** TCP connections a second, each with an answer; median of the rounds. */
  readonly connections: Readonly<Record<RoadName, number>>;
}

const FEW = 10;
const ENDPOINTS = 10;
const SERVER_PORT = 8080;
const FIRST_VIP = "10.96.0.1";
const FIRST_POD = "11.0.0.1";
const CLIENT = "10.200.0.2";
/** What a large write leaves to be done is over by then. */
const SETTLE_MS = 1000;

interface Road {
  readonly name: RoadName;
  readonly client: Namespace;
  readonly node: Namespace;
  readonly pod: Namespace;
}

async function makeRoad(name: RoadName): Promise<Road> {
  const [client, node, pod] = await Promise.all(
    ["client", "node", "pod"].map((part) => Namespace.create(`bench-${name}-${part}`)),
  );
  for (const namespace of [client, node, pod]) {
    await namespace.sysctl({ "net.ipv4.conf.all.rp_filter": 0, "net.ipv4.conf.default.rp_filter": 0 });
    await namespace.ip(["link set lo up"]);
  }
  await node.sysctl({ "net.ipv4.ip_forward": 1 });
  await node.ip([
    `link add eth0 type veth peer name eth0 netns ${client.name}`,
    `link add eth1 type veth peer name eth0 netns ${pod.name}`,
    "address add 10.200.0.1/24 dev eth0",
    "address add 10.201.0.1/24 dev eth1",
    "link set eth0 up",
    "link set eth1 up",
  ]);
  await client.ip(["link set eth0 up", `address add ${CLIENT}/24 dev eth0`, "route add default via 10.200.0.1"]);
  await pod.ip([
    "link set eth0 up",
    "address add 10.201.0.2/24 dev eth0",
    "route add default via 10.201.0.1",
    "route add local 11.0.0.0/8 dev lo",
  ]);
  await node.ip(["route add 11.0.0.0/8 via 10.201.0.2"]);
  return { name, client, node, pod };
}

const [services, connections, rounds, perRound] = process.argv.slice(2).map(Number);
const servicesOf: Readonly<Record<RoadName, number>> = { few: FEW, twin: FEW, many: services, none: 0 };

/** The services of one node, of one protocol at a time. */
class Node {
  readonly #kernel: NftKernel;
  readonly #proxier: Proxier;
  readonly #services: number;

  private constructor(kernel: NftKernel, services: number) {
    this.#kernel = kernel;
    this.#proxier = newProxier(kernel, { watch: false });
    this.#services = services;
  }

  static async open({ name, node }: Road): Promise<Node> {
    return new Node(await openKernel(node.name), servicesOf[name]);
  }

  async serve(protocol: Protocol): Promise<void> {
    await feed(this.#proxier, makeObjects(this.#services, ENDPOINTS, protocol));
    const { ok } = await this.#proxier.sync();
    if (!ok) throw new Error("the services could not be written");
  }

  async close(): Promise<void> {
    await this.#proxier.stop();
    await this.#kernel.close();
  }
}

/** Where a client finds servers on its road. */
function target({ name }: Road): readonly [first: string, port: number] {
  return name === "none" ? [FIRST_POD, SERVER_PORT] : [FIRST_VIP, 80];
}

async function firstPackets(roads: readonly Road[]): Promise<Record<PathName, Quantiles>> {
  const program = buildProgram("first-packet", [], "-O2");
  const path = (name: PathName, road: Road, destinations: number): string => {
    const [destination, port] = target(road);
    return [name, road.client.name, road.pod.name, CLIENT, destination, destinations, port, SERVER_PORT].join("|");
  };
  const paths = roads.flatMap((road) => {
    if (road.name === "many") return [path("many", road, FEW), path("many, any", road, services)];
    if (road.name === "none") return [path("none", road, FEW), path("none, any", road, services * ENDPOINTS)];
    return [path(road.name, road, FEW)];
  });
  const output = await mustRun(program, [String(connections), ...paths], { timeoutMs: 600_000 });
  return JSON.parse(output) as Record<PathName, Quantiles>;
}

/** TCP connections a second, each road in its turn. */
async function connectionRates(roads: readonly Road[]): Promise<Record<RoadName, number>> {
  for (const { pod } of roads) await pod.agent().serve("tcp", "*", SERVER_PORT, "pod");
  const rates: Record<RoadName, number[]> = { few: [], twin: [], many: [], none: [] };
  for (let round = 0; round < rounds; round++) {
    for (let i = 0; i < roads.length; i++) {
      const road = roads[(i + round) % roads.length];
      const [destination, port] = target(road);
      const start = performance.now();
      const outcomes = await road.client
        .agent()
        .probe({ protocol: "tcp", source: CLIENT, destination, port, count: perRound, timeoutMs: 10_000 });
      const seconds = (performance.now() - start) / 1000;
      const answered = outcomes.filter(({ result }) => result === "ok").reduce((sum, { count }) => sum + count, 0);
      if (answered !== perRound) throw new Error(`${road.name}: ${JSON.stringify(outcomes)}`);
      rates[road.name].push(perRound / seconds);
    }
  }
  return { few: median(rates.few), twin: median(rates.twin), many: median(rates.many), none: median(rates.none) };
}

const roads = await Promise.all(ROADS.map(makeRoad));
const nodes = await Promise.all(roads.filter(({ name }) => name !== "none").map((road) => Node.open(road)));
for (const node of nodes) await node.serve("UDP");
await sleep(SETTLE_MS);
const first = await firstPackets(roads);
for (const node of nodes) await node.serve("TCP");
await sleep(SETTLE_MS);
const rates = await connectionRates(roads);
for (const node of nodes) await node.close();
for (const { client, node, pod } of roads) await Promise.all([client, node, pod].map((part) => part.destroy()));
const result: Packets = { services, fewServices: FEW, first, connections: rates };
tell(result);

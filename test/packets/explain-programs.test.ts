/**
 * `explain` beside the rules of common programs: what it says about a packet and its reply is what happens to them, and it seldom says that it
 * does not know. The test prints a table.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { explainArriving } from "../../src/tools/explain/explain-arriving.ts";
import type { Explanation } from "../../src/tools/explain/explain-packet.ts";
import { NftKernel } from "../../src/netlink/nft-kernel.ts";
import { type Fate, Fates } from "../lab/fate.ts";
import { eventually } from "../lab/eventually.ts";
import { isShort } from "../lab/length.ts";
import { patience } from "../lab/patience.ts";
import { FAMILIES, type Family, PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterAddress,
  loadBalancerAddress,
  nodePortOf,
  POD_PORT,
  SERVICE_PORT,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { PROGRAM_RULES, type ProgramRules } from "./support/program-rules.ts";

/** Share of packets for which `explain` may say that it does not know. */
const MOST_UNKNOWN = 0.08;
/** How long to wait for a packet that should arrive, and for one that should not. A veth delivers within the send. */
const ARRIVAL_MS = patience(3000);
const SILENCE_MS = 5;

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"], protocols: ["tcp", "udp"] };
const two: ServiceSpec = { name: "two", n: 2, endpoints: ["a", "r1"], protocols: ["tcp", "udp"] };
const PODS = ["a", "b", "c", "r1"] as const;
const PORTS = [SERVICE_PORT, POD_PORT, nodePortOf(web.n)];

let cluster: Cluster;
let kernel: NftKernel;
let fates: Fates;
beforeAll(async () => {
  const pods = [
    { name: "a", on: "node" },
    { name: "b", on: "node" },
    { name: "c", on: "node", link: "bridge" },
    { name: "r1", on: "remote" },
  ] as const;
  cluster = await Cluster.create(pods, PODS);
  await cluster.apply([web, two].flatMap((service) => serviceObjects(cluster.lab, service)));
  kernel = await NftKernel.open({ netns: `/run/netns/${cluster.lab.node.name}` });
  fates = new Fates();
  const { node, client, remote, beyond } = cluster.lab;
  const servers = { node, client, r1: remote, beyond };
  for (const [name, namespace] of Object.entries(servers))
    for (const port of PORTS) await fates.serve(namespace, name, port);
  for (const name of ["a", "b", "c"])
    for (const port of PORTS) await fates.serve(cluster.lab.pod(name).namespace, name, port);
  // Every neighbour is known before rules may drop packets that ask for it.
  for (const asked of FAMILIES.flatMap(packetsOf).filter(({ from }) => from !== "a"))
    await eventually(async () => expect(await send(asked, ARRIVAL_MS)).toMatchObject({ reply: true }));
});
afterAll(async () => {
  await fates.stop();
  await kernel.close();
  await cluster.destroy();
});

interface Asked {
  readonly from: string;
  readonly family: Family;
  readonly protocol: "tcp" | "udp";
  readonly source: string;
  readonly destination: string;
  readonly port: number;
}

/** Two pods, a client outside the cluster, the node, and an endpoint, each to four addresses. */
function packetsOf(family: Family): Asked[] {
  return ["b", "c", "client", "node", "a"].flatMap((from) => {
    const source = cluster.source(from).address![family];
    return [
      { protocol: "tcp", destination: clusterAddress(web.n)[family], port: SERVICE_PORT },
      { protocol: "udp", destination: clusterAddress(two.n)[family], port: SERVICE_PORT },
      { protocol: "tcp", destination: PLAN.node[family], port: nodePortOf(web.n) },
      { protocol: "tcp", destination: loadBalancerAddress(two.n)[family], port: SERVICE_PORT },
    ].map((to) => ({ ...to, from, family, source }) as Asked);
  });
}

function send({ from, ...asked }: Asked, waitMs: number): Promise<Fate> {
  return fates.send({ ...asked, from: cluster.source(from).namespace, waitMs });
}

/** "a:8080, answered", "dropped", "rejected". */
function seenText({ at, port, seen, reply, error }: Fate, { source }: Asked): string {
  if (at === "") return error > 1 ? "rejected" : "dropped";
  const from = seen === source || cluster.nodeAddresses.has(source) ? "" : " masqueraded";
  return `${at}:${port}${from}, ${reply ? "answered" : "not answered"}`;
}

/** All that may happen to the packet according to the explanation. */
function saidTexts({ verdict, endpoints, reply }: Explanation, { from, destination, port }: Asked): string[] {
  const text = (to: string, toPort: number, lost: boolean, masqueraded = false): string =>
    `${nameOf(to)}:${toPort}${masqueraded && from !== "node" ? " masqueraded" : ""}, ${lost ? "not answered" : "answered"}`;
  if (verdict === "dropped" || verdict === "rejected") return [verdict];
  if (verdict === "untouched") return [text(destination, port, reply !== undefined)];
  return endpoints.flatMap((each) => {
    if (each.verdict !== undefined) return [each.verdict];
    // An IPv4 host drops packets from its own address.
    const own = each.reply?.by.includes("endpoint itself") === true ? ["dropped"] : [];
    return [text(each.address, each.port, each.reply !== undefined, each.masqueraded), ...own];
  });
}

function nameOf(address: string): string {
  const pod = PODS.find((name) => FAMILIES.some((family) => cluster.lab.pod(name).address[family] === address));
  return pod ?? (cluster.nodeAddresses.has(address) ? "node" : "beyond");
}

const isUnknown = ({ verdict, endpoints, reply }: Explanation): boolean =>
  verdict === "unknown" || [reply, ...endpoints.map((each) => each.reply)].some((each) => each?.verdict === "unknown");

const isSilent = ({ verdict, endpoints }: Explanation): boolean =>
  ["dropped", "mixed"].includes(verdict) || endpoints.some(({ reply }) => reply !== undefined);

async function load({ links = [], iptables, nft }: ProgramRules): Promise<void> {
  const { node } = cluster.lab;
  for (const line of links) await node.mustRun(["ip", ...line.split(" ")]);
  if (iptables !== undefined) await node.mustRun(["iptables-nft-restore"], { input: iptables });
  if (nft !== undefined) await node.mustRun(["nft", "-f", "-"], { input: nft });
}

async function unload({ iptables = "", nft = "", removed = [] }: ProgramRules): Promise<void> {
  const { node } = cluster.lab;
  const tables = [
    ...[...iptables.matchAll(/^\*(\w+)/gm)].map(([, name]) => `ip ${name}`),
    ...[...nft.matchAll(/^table (\w+ \w+)/gm)].map(([, name]) => name),
  ];
  await node.mustRun(["nft", "-f", "-"], { input: tables.map((name) => `delete table ${name}\n`).join("") });
  for (const line of removed) await node.mustRun(["ip", ...line.split(" ")]);
}

interface Row {
  readonly program: string;
  readonly packets: number;
  readonly unknown: readonly string[];
  readonly contradicted: readonly string[];
}

async function compared(rules: ProgramRules): Promise<Row> {
  const both = rules.ip6 === true ? FAMILIES.map(packetsOf) : [packetsOf("ip")];
  // Of both families, every other packet.
  const asked = (both[0] ?? []).map((one, i) => both[i % both.length]?.[i] ?? one);
  const unknown: string[] = [];
  const contradicted: string[] = [];
  await load(rules);
  try {
    for (const one of asked) {
      const { from, family, protocol, source, destination, port } = one;
      const packet = { family, protocol, source, destination, destinationPort: port, inInterface: "" };
      const said = await explainArriving(kernel, packet);
      const about = `${rules.program}: ${protocol} ${from} → ${destination} port ${port}`;
      if (isUnknown(said)) {
        unknown.push(`${about}: ${said.unknown[0] ?? said.endpoints.find(({ reply }) => reply)?.reply?.by ?? ""}`);
        continue;
      }
      const seen = seenText(await send(one, isSilent(said) ? SILENCE_MS : ARRIVAL_MS), one);
      const may = saidTexts(said, one);
      if (!may.includes(seen)) contradicted.push(`${about}: said ${may.join(" or ")}, seen ${seen}`);
    }
  } finally {
    await unload(rules);
  }
  return { program: rules.program, packets: asked.length, unknown, contradicted };
}

const rows: Row[] = [];

/** A short run leaves out those that differ little from others. */
const SHORT = ["docker, accepting one port", "calico", "firewalld"];

test.for(PROGRAM_RULES.filter(({ program }) => !isShort || SHORT.includes(program)))(
  "$program: no packet contradicts its explanation",
  async (rules) => {
    const row = await compared(rules);
    rows.push(row);
    expect(row.contradicted).toEqual([]);
  },
);

test("explain says for few packets that it does not know", () => {
  const packets = rows.reduce((sum, row) => sum + row.packets, 0);
  const unknown = rows.flatMap((row) => row.unknown);
  const lines = rows.map(
    ({ program, packets: all, unknown: open, contradicted }) =>
      `${program.padEnd(28)} ${[all, all - open.length - contradicted.length, open.length, contradicted.length].map((n) => String(n).padStart(8)).join("")}`,
  );
  console.log(["program, packets, agreed, unknown, contradicted", ...lines, ...unknown].join("\n"));
  expect(packets).toBeGreaterThan(0);
  expect(unknown.length / packets).toBeLessThanOrEqual(MOST_UNKNOWN);
});

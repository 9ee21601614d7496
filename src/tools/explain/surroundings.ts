/**
 * Notes on facts other than rules that affect a packet: settings, routes, connection tracking. Nothing here rejects.
 */
import { vipsOf } from "../../model/service-address.js";
import { addressBytes, withPort } from "../../base/ip.js";
import {
  nodePortPlaces,
  type NodePortStatus,
  type ServicePortStatus,
  sourceRangesText,
} from "../../observe/status-report.js";
import { TABLE_NAME } from "../../ruleset/names.js";
import {
  conntrackFill,
  conntrackFull,
  forwardingOff,
  forwardingOffAt,
  readSysctl,
} from "../../node/packet-settings.js";
import type { Listener } from "../../node/tcp-listeners.js";
import { routeTo } from "../../node/routes.js";
import type { Routing } from "./routing.js";
import { type ExplainedEndpoint, type Explanation, MOST_DRAWS } from "./explain-packet.js";
import type { PacketSpec } from "./packet.js";

/** The sender's established connections to the destination that have the same endpoint. */
export interface OpenConnections {
  readonly address: string;
  readonly port: number;
  readonly count: number;
}

/** Maximum number of endpoints whose routes are looked up. */
const MOST_ROUTES = 16;
/** Maximum number of names in a list. */
const NAMED = 5;
/** Type 3, destination unreachable, in the mask of types that icmp_ratelimit applies to (net/ipv4/icmp.c). */
const UNREACHABLE = 1 << 3;

interface Surroundings {
  readonly notes: readonly string[];
  /** Reasons why packets do not arrive, whatever the rules do. Empty if none is known. */
  readonly obstacles: readonly string[];
}

/** Notes about the node's settings, routes and connection tracking. */
export async function nodeNotes(packet: PacketSpec, explanation: Explanation, routing: Routing): Promise<Surroundings> {
  const obstacles = [
    ...(await reversePathDrops(packet)),
    ...(await notForwarded(packet, explanation, routing)),
    ...(await ownAway(packet, routing)),
    ...(await routesAway(packet, explanation.endpoints, routing)),
    ...(await untouchedAway(packet, explanation, routing)),
  ];
  const notes = await Promise.all([
    rejections(packet, explanation),
    missingRoutes(packet, explanation.endpoints, routing),
    unansweredForwards(packet, explanation, routing),
    reversePath(packet),
    fullTable(),
  ]);
  return { notes: notes.flat(), obstacles };
}

async function rejections({ family }: PacketSpec, { verdict, steps }: Explanation): Promise<string[]> {
  if (verdict !== "rejected" || !steps.some(({ text }) => text.includes("ICMP"))) return [];
  const name = family === "ip" ? "net.ipv4.icmp_ratelimit" : "net.ipv6.icmp.ratelimit";
  const [limit, mask] = await Promise.all([readSysctl(name), readSysctl("net.ipv4.icmp_ratemask")]);
  if (limit === 0 || (family === "ip" && mask !== undefined && (mask & UNREACHABLE) === 0)) return [];
  return [
    `the kernel limits the rate of ICMP errors (${name} is ${limit ?? "not readable"}), so some clients see a timeout instead`,
  ];
}

/** Only for packets from elsewhere, because packets from this node need no forwarding. */
async function notForwarded(
  { family, source, inInterface }: PacketSpec,
  { verdict, otherwise, endpoints }: Explanation,
  routing: Routing,
): Promise<string[]> {
  if ((otherwise ?? verdict) !== "endpoint") return [];
  if (inInterface === "" && (await isHere(source, routing))) return [];
  const off =
    (await forwardingOff(family)) ??
    (await forwardingOffAt(family, inInterface || ((await interfaceOf(source, routing)) ?? "")));
  if (off === undefined) return [];
  for (const { address } of endpoints) if (await isHere(address, routing)) return [];
  return [`${off.what}; ${off.remedy}`];
}

/** Without an answer, assume that the address is not here. */
async function isHere(address: string, routing: Routing): Promise<boolean> {
  return routing.hasAddress(address).catch(() => false);
}

/** A program on this node gets an error if there is no route to the address that it connects to, before any rule. */
async function ownAway({ family, source, destination, inInterface }: PacketSpec, routing: Routing): Promise<string[]> {
  if (inInterface !== "" || !(await isHere(source, routing))) return [];
  if ((await routing.policyRoute(family, destination, { source })) !== "none") return [];
  return [`this node has no route to ${destination}, so its programs cannot connect to it`];
}

/** Interfaces of endpoints that do not forward the replies. */
async function unansweredForwards(
  { family, source, inInterface }: PacketSpec,
  { endpoints }: Explanation,
  routing: Routing,
): Promise<string[]> {
  if (inInterface === "" && (await isHere(source, routing))) return [];
  const names = await Promise.all(
    endpoints.slice(0, MOST_ROUTES).map(({ address }) => routing.interfaceTo(family, address)),
  );
  const notes: string[] = [];
  for (const name of new Set(names.filter((each) => each !== undefined && each !== "lo"))) {
    const off = await forwardingOffAt(family, name ?? "");
    if (off !== undefined) notes.push(`${off.what}, such as replies of endpoints; ${off.remedy}`);
  }
  return notes;
}

/** A packet whose incoming interface was not given comes in by the interface of the route back. */
async function interfaceOf(source: string, routing: Routing): Promise<string | undefined> {
  const route = await routing.route(source);
  return typeof route === "string" ? undefined : route.interfaceName;
}

async function withoutRoute(
  { family, source, inInterface }: PacketSpec,
  endpoints: readonly ExplainedEndpoint[],
  routing: Routing,
): Promise<string[]> {
  const addresses = [...new Set(endpoints.map(({ address }) => address))].slice(0, MOST_ROUTES);
  const isOwn = inInterface === "" && (await isHere(source, routing));
  const from = isOwn ? { source } : { source, inInterface: inInterface || (await interfaceOf(source, routing)) };
  const found = await Promise.all(
    addresses.map(async (address) => ({ address, route: await routing.policyRoute(family, address, from) })),
  );
  return found.filter(({ route }) => route === "none").map(({ address }) => address);
}

async function missingRoutes(
  packet: PacketSpec,
  endpoints: readonly ExplainedEndpoint[],
  routing: Routing,
): Promise<string[]> {
  const lost = await withoutRoute(packet, endpoints, routing);
  const all = new Set(endpoints.map(({ address }) => address));
  return lost.length === 0 || lost.length === all.size
    ? []
    : [
        `there is no route to ${named(lost)}, so packets to ${lost.length === 1 ? "it" : "them"} do not arrive; check with \`ip route get\``,
      ];
}

/** An obstacle only if no endpoint has a route. */
async function routesAway(
  packet: PacketSpec,
  endpoints: readonly ExplainedEndpoint[],
  routing: Routing,
): Promise<string[]> {
  const lost = await withoutRoute(packet, endpoints, routing);
  const all = new Set(endpoints.map(({ address }) => address));
  return lost.length > 0 && lost.length === all.size ? [`there is no route to ${named(lost)}`] : [];
}

/** For a packet that goes where it was addressed. */
async function untouchedAway(
  { destination }: PacketSpec,
  { verdict, otherwise }: Explanation,
  routing: Routing,
): Promise<string[]> {
  if ((otherwise ?? verdict) !== "untouched" || (await routing.route(destination)) !== "none") return [];
  return [`there is no route to ${destination}`];
}

/** For a known incoming interface. */
async function reversePathDrops({ family, source, inInterface }: PacketSpec): Promise<string[]> {
  if (family !== "ip" || inInterface === "" || (await reversePathMode(inInterface)) !== STRICT) return [];
  const back = await routeTo(source);
  if (back === "unknown" || (back !== "none" && back.interfaceName === inInterface)) return [];
  return back === "none"
    ? [noWayBack(source)]
    : [`rp_filter is strict and requires packets from ${source} to arrive on ${back.interfaceName}. ${LOOSEN}`];
}

function noWayBack(source: string): string {
  return `rp_filter is strict and there is no route back to ${source}, so packets from there are dropped before the rules. ${LOOSEN}`;
}

const STRICT = 1;
const LOOSEN = "Correct the route, or run `sysctl -w net.ipv4.conf.all.rp_filter=2`";

/** The larger of the two settings applies. 2 is loose. */
async function reversePathMode(inInterface: string): Promise<number> {
  const names = ["all", ...(inInterface === "" ? [] : [inInterface])];
  const values = await Promise.all(names.map((name) => readSysctl(`net.ipv4.conf.${name}.rp_filter`)));
  return Math.max(...values.map((value) => value ?? 0));
}

/** For an unknown incoming interface. Only IPv4, before any rule (net/ipv4/fib_frontend.c, fib_validate_source). */
async function reversePath({ family, source, inInterface }: PacketSpec): Promise<string[]> {
  if (family !== "ip" || inInterface !== "" || (await reversePathMode("")) !== STRICT) return [];
  const back = await routeTo(source);
  if (back === "unknown") return [];
  return back === "none"
    ? [noWayBack(source)]
    : [
        `rp_filter is strict, so packets from ${source} are dropped unless they arrive on ${back.interfaceName}. ${LOOSEN}`,
      ];
}

async function fullTable(): Promise<string[]> {
  const full = conntrackFull(await conntrackFill());
  return full === undefined ? [] : [full.what];
}

/** An open connection keeps its first endpoint. */
export function openNotes(open: readonly OpenConnections[], { endpoints }: Explanation): string[] {
  if (open.length === 0) return ["open connections keep their endpoint; `nft-proxier conntrack list` shows them"];
  const drawn = new Set(endpoints.map(({ address, port }) => withPort(address, port)));
  const texts = open.map(({ address, port, count }) => {
    const name = withPort(address, port);
    return `${name} (${count}${drawn.has(name) ? "" : ", not used for new connections"})`;
  });
  return [`established connections bypass these rules and keep their endpoint: ${named(texts)}`];
}

/** Compares the endpoints in the rules with those that the daemon desires. */
export function differenceNotes(explanation: Explanation, desired: ServicePortStatus | undefined): string[] {
  const endpoints = desired?.endpoints;
  if (endpoints === undefined || explanation.verdict !== "endpoint") return [];
  const present = explanation.endpoints.map(({ address, port }) => withPort(address, port));
  const lists = (["clusterShare", "localShare"] as const).map((share) =>
    endpoints.filter((each) => each[share] > 0).map(({ address, port }) => withPort(address, port)),
  );
  const missingIn = (list: readonly string[], from: readonly string[]): string[] => {
    const has = new Set(list);
    return [...new Set(from)].filter((name) => !has.has(name));
  };
  if (lists.some((list) => missingIn(list, present).length === 0 && missingIn(present, list).length === 0)) return [];
  const more = missingIn(lists.flat(), present);
  // If the client decides, other clients' endpoints are not visible. A rare endpoint is not visible if not every number
  // was followed.
  const all = explanation.draws > 0 && explanation.draws <= MOST_DRAWS;
  const less = all ? missingIn(present, lists.flat()) : [];
  const parts = [
    ...(more.length > 0 ? [`has ${named(more)}, which the daemon does not want${less.length > 0 ? "," : ""}`] : []),
    ...(less.length > 0 ? [`lacks ${named(less)}`] : []),
  ];
  if (parts.length === 0) return [];
  return [`the kernel ${parts.join(" and ")}; a change is pending or was refused (see \`nft-proxier status\`)`];
}

/** Notes that shares are approximate because not every number was followed. */
export function sampleNotes({ draws }: Explanation): string[] {
  return draws <= MOST_DRAWS
    ? []
    : [`the rules draw one of ${draws} numbers, and only ${MOST_DRAWS} were followed, so the shares are approximate`];
}

/**
 * Names the ports served at this address, or else the service with the nearest address. For an address of this node,
 * names the nearest node port instead, or says that a program has the port.
 * @param isNode whether the address is this node's.
 * @param listening the addresses and ports on which this node's programs listen.
 */
export function nearestNotes(
  { family, protocol, destination, destinationPort }: PacketSpec,
  services: readonly ServicePortStatus[],
  isNode: boolean,
  listening: readonly Pick<Listener, "address" | "port">[] = [],
): string[] {
  const there = services.filter((each) => vipsOf(each).includes(destination));
  if (there.length > 0) {
    const ports = there.map(({ namespace, name, port, protocol }) => `${port}/${protocol} of ${namespace}/${name}`);
    return [`no service has this port and protocol; served at this address: ${ports.join(", ")}`];
  }
  if (isNode) {
    const none = `no service has node port ${destinationPort}/${protocol.toUpperCase()}`;
    const all = ["0.0.0.0", "::"];
    const program = listening.find(
      ({ address, port }) => port === destinationPort && (address === destination || all.includes(address)),
    );
    if (protocol === "tcp" && program !== undefined)
      return [`${none}; a program of this node listens on ${withPort(program.address, program.port)}`];
    const [nearest] = services
      .filter((each) => each.family === family && each.nodePort > 0)
      .sort((a, b) => Math.abs(a.nodePort - destinationPort) - Math.abs(b.nodePort - destinationPort));
    if (nearest === undefined) return [none];
    return [`${none}; the nearest is ${nearest.nodePort}/${nearest.protocol} of ${nearest.namespace}/${nearest.name}`];
  }
  const sought = numberOf(destination);
  let nearest: { readonly text: string; readonly distance: bigint } | undefined;
  for (const service of services) {
    if (service.family !== family) continue;
    for (const address of vipsOf(service)) {
      const away = numberOf(address) - sought;
      const distance = away < 0n ? -away : away;
      if (nearest !== undefined && nearest.distance <= distance) continue;
      const { namespace, name, port, protocol } = service;
      nearest = { distance, text: `${withPort(address, port)}/${protocol} of ${namespace}/${name}` };
    }
  }
  return [`no service has this address${nearest === undefined ? "" : `; the nearest is ${nearest.text}`}`];
}

/** The source ranges that drop the packet. */
export function sourceRangeNotes(
  { source, destination }: PacketSpec,
  { verdict, otherwise, steps }: Explanation,
  service: ServicePortStatus | undefined,
): string[] {
  const last = steps.at(-1);
  if ((otherwise ?? verdict) !== "dropped" || last?.chain.startsWith("source-ranges-") !== true) return [];
  if (!last.table.endsWith(` ${TABLE_NAME}`)) return [];
  const ranges = service && sourceRangesText(service, destination);
  return [`${source} is not in loadBalancerSourceRanges${ranges === undefined ? "" : ` (${ranges})`}`];
}

/** A node port at an address where node ports are not served. */
export function nodePortNotes(
  { destination, destinationPort }: PacketSpec,
  { verdict }: Explanation,
  service: ServicePortStatus | undefined,
  nodePorts: NodePortStatus | undefined,
): string[] {
  const where = nodePorts === undefined ? undefined : nodePortPlaces(nodePorts);
  if (verdict !== "untouched" || service?.nodePort !== destinationPort || where === undefined) return [];
  if (vipsOf(service).includes(destination)) return [];
  return [
    `node port ${destinationPort} belongs to ${service.namespace}/${service.name}, but this node serves node ports on ${where}, not on ${destination}`,
  ];
}

function numberOf(address: string): bigint {
  return BigInt(`0x${Buffer.from(addressBytes(address) ?? []).toString("hex") || "0"}`);
}

function named(words: readonly string[]): string {
  const more = words.length - NAMED;
  return words.slice(0, NAMED).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

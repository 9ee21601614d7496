/** Notes on a packet from what the daemon knows about services. Pure. */
import { someOf } from "../../base/counted.js";
import { vipsOf } from "../../model/service-address.js";
import { addressBytes, withPort } from "../../base/ip.js";
import {
  nodePortPlaces,
  type NodePortStatus,
  type ServicePortStatus,
  sourceRangesText,
} from "../../observe/status-report.js";
import { TABLE_NAME } from "../../ruleset/names.js";
import type { Listener } from "../../node/socket-listeners.js";
import { type ExplainedEndpoint, type Explanation, MOST_DRAWS } from "./explain-packet.js";
import type { PacketSpec } from "./machine/packet-spec.js";
import type { OpenConnections } from "./world/open-connections.js";

/** An open connection keeps its first endpoint. */
export function openNotes(open: readonly OpenConnections[], { endpoints }: Explanation): string[] {
  if (open.length === 0) return ["open connections keep their endpoint; `nft-proxier conntrack list` shows them"];
  const drawn = new Set(endpoints.map(nameOf));
  const texts = open.map((each) => {
    const isUsed = drawn.has(nameOf(each));
    return `${nameOf(each)} (${each.count}${isUsed ? "" : ", not used for new connections"})`;
  });
  return [`established connections bypass these rules and keep their endpoint: ${someOf(texts)}`];
}

/** Compares the endpoints in the rules with those that the daemon desires. */
export function differenceNotes(explanation: Explanation, desired: ServicePortStatus | undefined): string[] {
  const endpoints = desired?.endpoints;
  if (endpoints === undefined || explanation.verdict !== "endpoint") return [];
  const lists = (["clusterShare", "localShare"] as const).map(
    (share) => new Set(endpoints.filter((each) => each[share] > 0).map(nameOf)),
  );
  const present = new Set(explanation.endpoints.map(nameOf));
  const without = (some: ReadonlySet<string>, others: ReadonlySet<string>): string[] =>
    [...some].filter((name) => !others.has(name));
  if (lists.some((list) => without(list, present).length === 0 && list.size === present.size)) return [];
  const all = new Set(lists.flatMap((list) => [...list]));
  const more = without(present, all);
  // If the client decides, other clients' endpoints are not visible. A rare endpoint is not visible if not every number
  // was followed.
  const isComplete = explanation.draws > 0 && explanation.draws <= MOST_DRAWS;
  const less = isComplete ? without(all, present) : [];
  const parts = [
    ...(more.length > 0 ? [`has ${someOf(more)}, which the daemon does not want${less.length > 0 ? "," : ""}`] : []),
    ...(less.length > 0 ? [`lacks ${someOf(less)}`] : []),
  ];
  if (parts.length === 0) return [];
  return [`the kernel ${parts.join(" and ")}; a change is pending or was refused (see \`nft-proxier status\`)`];
}

/** A rule of another program prevents masquerading, so the answer comes back only if it passes this node anyway. */
export function masqueradeNotes({ endpoints }: Explanation, desired: ServicePortStatus | undefined): string[] {
  const away = (desired?.endpoints ?? []).filter(({ local }) => !local);
  const isAway = (of: ExplainedEndpoint): boolean => away.some((each) => nameOf(each) === nameOf(of));
  return [...Map.groupBy(endpoints, ({ unmasqueradedBy }) => unmasqueradedBy)].flatMap(([rule, some]) => {
    if (rule === undefined) return [];
    const names = some.filter(isAway).map(nameOf);
    const which = names.length === 0 ? "endpoints on other nodes" : `${someOf(names)}, on other nodes,`;
    const lost = `answers of ${which} bypass this node (unless they are routed through it), and the sender does not recognize them`;
    return [
      `${rule} clears the bit of the packet mark by which nft-proxier masquerades, so ${lost}. Change that rule, or set nftables.masqueradeBit to a bit that no other program uses`,
    ];
  });
}

function nameOf({ address, port }: Pick<ExplainedEndpoint, "address" | "port">): string {
  return withPort(address, port);
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
 * @param listening the addresses and ports on which this node's programs listen, with the packet's protocol.
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
  const same = services.filter((each) => each.family === family);
  if (isNode) {
    const none = `no service has node port ${destinationPort}/${protocol.toUpperCase()}`;
    const program = listening.find(
      ({ address, port }) => port === destinationPort && [destination, "0.0.0.0", "::"].includes(address),
    );
    if (program !== undefined)
      return [`${none}; a program of this node listens on ${withPort(program.address, program.port)}`];
    const ports = same.filter(({ nodePort }) => nodePort > 0);
    const nearest = nearestTo(BigInt(destinationPort), ports, ({ nodePort }) => BigInt(nodePort));
    if (nearest === undefined) return [none];
    return [`${none}; the nearest is ${nearest.nodePort}/${nearest.protocol} of ${nearest.namespace}/${nearest.name}`];
  }
  const all = same.flatMap((service) => vipsOf(service).map((address) => ({ ...service, address })));
  const nearest = nearestTo(numberOf(destination), all, ({ address }) => numberOf(address));
  if (nearest === undefined) return ["no service has this address"];
  const { namespace, name, address, port, protocol: of } = nearest;
  return [`no service has this address; the nearest is ${withPort(address, port)}/${of} of ${namespace}/${name}`];
}

function nearestTo<T>(sought: bigint, all: readonly T[], valueOf: (one: T) => bigint): T | undefined {
  let [nearest, least]: [T | undefined, bigint] = [undefined, 1n << 128n];
  for (const one of all) {
    const away = valueOf(one) - sought;
    const distance = away < 0n ? -away : away;
    if (distance < least) [nearest, least] = [one, distance];
  }
  return nearest;
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

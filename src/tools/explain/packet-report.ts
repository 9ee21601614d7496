/** An explanation with the owner of the packet's destination, and related facts. */
import { vipsOf } from "../../model/service-address.js";
import { UsageError } from "../../base/user-error.js";
import { familyOf, type IpFamily, parseAddress } from "../../base/ip.js";
import type { EndpointStatus, NodePortStatus, ServicePortStatus } from "../../observe/status-report.js";
import type { LegacyTables } from "../../nft/kernel/legacy-tables.js";
import { hostAndPort, packetWords } from "./packet-words.js";
import { isLoopback } from "../../node/node-facts.js";
import { readListeners } from "../../node/socket-listeners.js";
import { explainArriving, type ExplainedEndpoint, type Explanation } from "./explain-packet.js";
import { nodeNotes } from "./node-notes.js";
import { type Addressed, LOOPBACK, OUTSIDE, type PacketSpec } from "./machine/packet-spec.js";
import {
  differenceNotes,
  masqueradeNotes,
  nearestNotes,
  nodePortNotes,
  openNotes,
  sampleNotes,
  sourceRangeNotes,
} from "./service-notes.js";
import { legacyObstacles } from "./world/legacy-obstacles.js";
import { type OpenConnections, openConnections } from "./world/open-connections.js";
import { type RoutedKernel, Routing } from "./world/routing.js";

/** A packet from the arguments, with the parts that were not given. */
interface AskedPacket extends PacketSpec {
  /** No source was given: the source stands for any address outside the cluster. Absent if one was given. */
  readonly sourceAssumed?: boolean;
}

/** Parses "[tcp|udp|sctp] [SOURCE] DESTINATION:PORT". Throws a UsageError. */
export function packetOf(words: readonly string[], inInterface: string): AskedPacket {
  const { protocol = "tcp", source: from, destination: to = "" } = packetWords(words);
  const { host = "", port } = hostAndPort(to) ?? {};
  const destination = parseAddress(host);
  const usage =
    "Usage: explain [tcp|udp|sctp] [SOURCE] DESTINATION:PORT, with IPv6 addresses in brackets. Example: explain udp 10.244.0.5 10.96.0.10:53";
  if (destination === undefined || port === undefined)
    throw new UsageError(`${words.join(" ")} is not an address and port. ${usage}`);
  const family = familyOf(destination);
  const packet = { family, protocol, destination, destinationPort: port, inInterface };
  // Only this node can send to its loopback addresses.
  const sender = isLoopback(destination) ? LOOPBACK[family] : OUTSIDE[family];
  if (from === undefined) return { ...packet, source: sender, sourceAssumed: true };
  const source = parseAddress(from);
  if (source === undefined || familyOf(source) !== family)
    throw new UsageError(`${from} is not an address of the destination's family. ${usage}`);
  return { ...packet, source };
}

/** Finds the service port that has this address and port, or this node port. */
export function ownerOf(
  { family, protocol, destination, destinationPort }: Addressed,
  services: readonly ServicePortStatus[],
): ServicePortStatus | undefined {
  const same = services.filter((each) => each.family === family && each.protocol.toLowerCase() === protocol);
  return (
    same.find((each) => each.port === destinationPort && vipsOf(each).includes(destination)) ??
    same.find(({ nodePort }) => nodePort === destinationPort)
  );
}

/** An endpoint with its pod, node and zone, if known. */
type NamedEndpoint = ExplainedEndpoint & Pick<EndpointStatus, "pod" | "node" | "zone">;

export interface PacketReport extends Explanation {
  readonly packet: AskedPacket;
  readonly endpoints: readonly NamedEndpoint[];
  /** The service port that has the destination. */
  readonly service?: ServicePortStatus;
  /** Open connections by endpoint. */
  readonly open?: readonly OpenConnections[];
  /** Why the packet does not arrive, whatever the rules do. The verdict is then "dropped". */
  readonly obstacle?: string;
  readonly notes: readonly string[];
}

/** Sources other than the kernel's rules. */
export interface Sources {
  /**
   * Returns the ports of the service that has this address and port, or else this node port, with their desired
   * endpoints. Returns an empty list if no service has it. Returns undefined if no daemon answers, or if it has not
   * written any rules yet.
   */
  ownerOf(to: Addressed): Promise<readonly ServicePortStatus[] | undefined>;
  /** All service ports of this node. Called if no service has the destination. */
  services(): Promise<readonly ServicePortStatus[]>;
  /** Where node ports are served. Returns undefined if unknown. */
  nodePorts(family: IpFamily): Promise<NodePortStatus | undefined>;
}

type ReportKernel = RoutedKernel & { readonly legacy: Pick<LegacyTables, "forwardDrops" | "layout"> };

/** Reports what the kernel does with such a packet, and related facts. */
export async function reportOn(packet: AskedPacket, kernel: ReportKernel, sources: Sources): Promise<PacketReport> {
  const routing = new Routing(kernel);
  const legacy = await legacyObstacles(kernel.legacy, packet.family);
  const read = await explainArriving(kernel, packet, routing);
  // Rules that cannot be read make every verdict unknown.
  const { verdict, otherwise = verdict, unknown } = read;
  const explanation: Explanation =
    legacy.length === 0 ? read : { ...read, verdict: "unknown", otherwise, unknown: [...legacy, ...unknown] };
  const open = await openConnections(packet, packet.sourceAssumed === true ? undefined : packet.source);
  const ports = await sources.ownerOf(packet);
  const owner = ports && ownerOf(packet, ports);
  const notes = [
    ...sourceRangeNotes(packet, explanation, owner),
    ...assumptions(packet, explanation),
    ...openNotes(open, explanation),
    ...masqueradeNotes(explanation, owner),
  ];
  if (ports === undefined)
    notes.push("the service is unknown, because no daemon answers or it has not written its rules yet");
  else if (owner === undefined) {
    const isNode = await routing.hasAddress(packet.destination);
    const { protocol } = packet;
    const listening = isNode && protocol !== "sctp" ? await readListeners("/", protocol) : [];
    notes.push(...nearestNotes(packet, await sources.services(), isNode, listening));
  } else {
    notes.push(...differenceNotes(explanation, owner));
    notes.push(...nodePortNotes(packet, explanation, owner, await sources.nodePorts(packet.family)));
  }
  const around = await nodeNotes(packet, explanation, routing);
  const [obstacle, ...others] = around.obstacles;
  notes.push(...sampleNotes(explanation), ...around.notes, ...others);
  const endpoints = explanation.endpoints.map((each) => {
    const desired = owner?.endpoints?.find(({ address, port }) => address === each.address && port === each.port);
    return { ...each, pod: desired?.pod, node: desired?.node, zone: desired?.zone };
  });
  const { otherwise: _, reply: __, ...known } = explanation;
  const ended = obstacle === undefined ? explanation : { ...known, verdict: "dropped" as const, unknown: [], obstacle };
  const service = owner && { service: { ...owner, endpoints: undefined } };
  return { packet, ...service, ...ended, endpoints, ...(open.length > 0 && { open }), notes };
}

function assumptions(
  { source, sourceAssumed, inInterface }: AskedPacket,
  { verdict, unknown, assumedInterface }: Explanation,
): string[] {
  const notes: string[] = [];
  if (sourceAssumed === true) {
    const who = isLoopback(source) ? "this node" : "a client outside the cluster";
    notes.push(`no source was given, so ${source} is assumed, which stands for ${who}`);
  }
  if (assumedInterface !== undefined) {
    notes.push(
      `the incoming interface was not given, so ${assumedInterface} is assumed, through which the route to ${source} leads; \`--in\` sets another`,
    );
  } else if (verdict === "unknown" && inInterface === "" && unknown.some((what) => /\b[io]if(name)?\b/.test(what))) {
    notes.push("the incoming interface was not given; add `--in <interface>`");
  }
  return notes;
}

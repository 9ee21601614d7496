/** An explanation as text: the packet, the owner of its destination, and related facts. */
import { vipsOf } from "../../model/service-address.js";
import { columns, linesText } from "../../base/columns.js";
import { familyOf, type IpFamily, parseAddress, withPort } from "../../base/ip.js";
import {
  type EndpointStatus,
  type NodePortStatus,
  type ServicePortStatus,
  serviceText,
} from "../../observe/status-report.js";
import { isLoopback } from "../../node/node-facts.js";
import { type ArrivingExplanation, explainArriving } from "./explain-arriving.js";
import type { ExplainedEndpoint, ExplainedReply, ExplainedVerdict, Explanation } from "./explain-packet.js";
import { LOOPBACK, type PacketSpec, TRANSPORTS } from "./packet.js";
import { type RoutedKernel, Routing } from "./routing.js";
import {
  differenceNotes,
  nearestNotes,
  nodeNotes,
  nodePortNotes,
  type OpenConnections,
  openNotes,
  sourceRangeNotes,
  sampleNotes,
} from "./surroundings.js";
import { readListeners } from "../../node/tcp-listeners.js";

/** Documentation addresses (RFC 5737, RFC 3849) that stand for a client outside the cluster. */
const OUTSIDE = { ip: "192.0.2.1", ip6: "2001:db8::1" } as const;

/** Arguments that do not describe a packet. The message shows the syntax. */
export class PacketError extends Error {
  override readonly name = "PacketError";
}

/** A packet from the arguments, with the parts that were not given. */
interface AskedPacket extends PacketSpec {
  /** No source was given: the source stands for any address outside the cluster. Absent if one was given. */
  readonly sourceAssumed?: boolean;
}

/** Parses "[tcp|udp|sctp] [SOURCE] DESTINATION:PORT". Throws a PacketError. */
export function packetOf(words: readonly string[], inInterface: string): AskedPacket {
  const [first = ""] = words;
  const named = TRANSPORTS.find((name) => name === first);
  const protocol = named ?? "tcp";
  const rest = named === undefined ? words : words.slice(1);
  const [from, to] = rest.length === 1 ? [undefined, rest[0]] : rest;
  const match = /^(?:\[(.+)\]|([^[\]]+)):(\d{1,5})$/.exec(to ?? "");
  const destination = parseAddress(match?.[1] ?? match?.[2] ?? "");
  const port = Number(match?.[3] ?? 0);
  const usage =
    "Usage: explain [tcp|udp|sctp] [SOURCE] DESTINATION:PORT, with IPv6 addresses in brackets. Example: explain udp 10.244.0.5 10.96.0.10:53";
  if (rest.length < 1 || rest.length > 2 || destination === undefined || port < 1 || port > 65_535) {
    throw new PacketError(`${words.join(" ")} is not an address and port. ${usage}`);
  }
  const family = familyOf(destination);
  // Only this node can send to its loopback addresses.
  const sender = isLoopback(destination) ? LOOPBACK[family] : OUTSIDE[family];
  const source = from === undefined ? sender : parseAddress(from);
  if (source === undefined || familyOf(source) !== family) {
    throw new PacketError(`${from} is not an address of the destination's family. ${usage}`);
  }
  const packet = { family, protocol, source, destination, destinationPort: port, inInterface };
  return from === undefined ? { ...packet, sourceAssumed: true } : packet;
}

/** A packet's destination. */
export type Addressed = Pick<PacketSpec, "family" | "protocol" | "destination" | "destinationPort">;

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
  /** Open connections from the packet's sender (undefined: from any) to its destination. */
  openConnections(to: Addressed, source: string | undefined): Promise<readonly OpenConnections[]>;
  /** Descriptions of older iptables rules that may decide over packets of a family. Their content cannot be read. */
  legacyRules(family: IpFamily): Promise<readonly string[]>;
}

/** Reports what the kernel does with such a packet, and related facts. */
export async function reportOn(packet: AskedPacket, kernel: RoutedKernel, sources: Sources): Promise<PacketReport> {
  const legacy = await sources.legacyRules(packet.family);
  const explanation = withLegacy(await explainArriving(kernel, packet), legacy);
  const source = packet.sourceAssumed === true ? undefined : packet.source;
  const open = await sources.openConnections(packet, source);
  const routing = new Routing(kernel);
  const ports = await sources.ownerOf(packet);
  const owner = ports === undefined ? undefined : ownerOf(packet, ports);
  const notes = [
    ...sourceRangeNotes(packet, explanation, owner),
    ...assumptions(packet, explanation),
    ...openNotes(open, explanation),
  ];
  if (ports === undefined)
    notes.push("the service is unknown, because no daemon answers or it has not written its rules yet");
  else if (owner === undefined) {
    const isNode = await routing.hasAddress(packet.destination);
    const listening = isNode ? await readListeners() : [];
    notes.push(...nearestNotes(packet, await sources.services(), isNode, listening));
  } else {
    notes.push(...differenceNotes(explanation, owner));
    const nodePorts = await sources.nodePorts(packet.family);
    notes.push(...nodePortNotes(packet, explanation, owner, nodePorts));
  }
  const around = await nodeNotes(packet, explanation, routing);
  notes.push(...sampleNotes(explanation), ...around.notes);
  const { endpoints: desired, ...service } = owner ?? {};
  const endpoints = explanation.endpoints.map((each) => ({ ...each, ...detailsOf(each, desired) }));
  const asked = owner === undefined ? {} : { service: service as ServicePortStatus };
  const [obstacle, ...others] = around.obstacles;
  notes.push(...others);
  const ended = obstacle === undefined ? explanation : withObstacle(explanation, obstacle);
  return { packet, ...asked, ...ended, endpoints, ...(open.length > 0 && { open }), notes };
}

/** Rules that cannot be read make every verdict unknown. */
function withLegacy(explanation: ArrivingExplanation, legacy: readonly string[]): ArrivingExplanation {
  if (legacy.length === 0) return explanation;
  const otherwise = explanation.otherwise ?? explanation.verdict;
  return { ...explanation, verdict: "unknown", otherwise, unknown: [...legacy, ...explanation.unknown] };
}

function withObstacle(explanation: Explanation, obstacle: string): Explanation & { readonly obstacle: string } {
  const { otherwise: _, reply: __, ...known } = explanation;
  return { ...known, verdict: "dropped", unknown: [], obstacle };
}

function assumptions(
  { source, sourceAssumed, inInterface }: AskedPacket,
  { verdict, unknown, assumedInterface }: ArrivingExplanation,
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

function detailsOf(
  { address, port }: ExplainedEndpoint,
  desired: readonly EndpointStatus[] = [],
): Pick<EndpointStatus, "pod" | "node" | "zone"> {
  const same = desired.find((each) => each.address === address && each.port === port);
  const { pod, node, zone } = same ?? {};
  return { pod, node, zone };
}

const VERDICTS: Readonly<Record<Exclude<ExplainedVerdict, "unknown">, string>> = {
  endpoint: "goes to an endpoint",
  untouched: "passes unchanged to its destination address",
  redirected: "is redirected to a port of this node",
  rejected: "is rejected with an error",
  dropped: "is dropped silently",
  mixed: "depends on the endpoint",
};

/** The packet's fate in one sentence. */
function headline({ verdict, otherwise, unknown, limited, noTable, obstacle, endpoints, reply }: PacketReport): string {
  if (obstacle !== undefined) return `does not arrive: ${obstacle}`;
  if (verdict === "unknown") {
    const [first = "a rule whose result is unknown", ...others] = unknown;
    const more = others.length === 0 ? "" : ` (and ${others.length} more)`;
    const rest =
      otherwise === undefined || otherwise === "unknown"
        ? ""
        : `; ${assumption(unknown)}, the packet ${VERDICTS[otherwise]}`;
    return `unknown: it depends on ${first}${more}${rest}`;
  }
  if (verdict === "untouched" && noTable === true) {
    const lost = reply === undefined ? "" : `; ${replyText(reply)}`;
    return `passes unchanged to its destination address, because the kernel has no rules of nft-proxier${lost}`;
  }
  if (verdict === "mixed") {
    const arrive = endpoints.reduce((sum, each) => sum + (each.verdict === undefined ? each.share : 0), 0);
    return `${VERDICTS.mixed}: ${((1 - arrive) * 100).toFixed(0)} % of new connections are dropped or rejected`;
  }
  const limit = limited === true ? ", unless a limit of the service is exceeded" : "";
  return `${VERDICTS[verdict].replace(/^is /, "")}${limit}${reply === undefined ? "" : `, but ${replyText(reply)}`}`;
}

/** "the reply is dropped by inet a f: tcp sport 80 drop (handle 3)". */
function replyText({ verdict, by }: ExplainedReply): string {
  if (verdict === "unknown") return `whether the reply arrives depends on ${by}`;
  return verdict === "lost" ? `the reply is lost: ${by}` : `the reply is ${verdict} by ${by}`;
}

/** The source that an endpoint sees, or the reason why a packet or its reply does not arrive. */
function endpointText({ verdict, by, masqueraded, reply }: ExplainedEndpoint): string {
  if (verdict !== undefined) return by === undefined ? verdict : `${verdict} by ${by}`;
  const sees = masqueraded ? "sees an address of this node" : "sees the sender's address";
  return reply === undefined ? sees : `${sees}, but ${replyText(reply)}`;
}

/** Returns the assumption under which `otherwise` holds. */
function assumption(unknown: readonly string[]): string {
  const rules = unknown.filter((what) => !what.startsWith("the order of "));
  const matches = rules.length === 1 ? "if it does not match" : "if none of them matches";
  if (rules.length === unknown.length) return matches;
  return rules.length === 0
    ? "in this order"
    : `in this order, and ${rules.length === 1 ? "if the rule does not match" : "if no rule matches"}`;
}

export function reportText(report: PacketReport): string {
  const { packet, endpoints, steps, service, notes, unknown } = report;
  const { protocol, source, sourceAssumed, destination, destinationPort } = packet;
  const from = sourceAssumed === true ? `${source} (assumed)` : source;
  const lines = [`${protocol} ${from} → ${withPort(destination, destinationPort)}: ${headline(report)}`];
  if (service !== undefined) {
    const { state, reason } = service;
    lines.push(`service ${serviceText(service)}: ${state}${reason === undefined ? "" : ` (${reason})`}`);
  }
  if (endpoints.length > 0) {
    const known = (["pod", "node", "zone"] as const).filter((detail) => endpoints.some((each) => each[detail]));
    const rows = endpoints.map((endpoint) => [
      "",
      withPort(endpoint.address, endpoint.port),
      ...known.map((detail) => endpoint[detail] ?? "-"),
      `${(endpoint.share * 100).toFixed(endpoint.share < 0.1 ? 1 : 0)} %`,
      endpointText(endpoint),
    ]);
    lines.push("", "endpoints", ...columns(rows));
  }
  if (steps.length > 0) {
    const rows = steps.map(({ hook, table, chain, text }) => ["", hook, table, chain, text]);
    lines.push("", endpoints.length > 1 ? "steps to the first endpoint" : "steps", ...columns(rows));
  }
  const depends = unknown.slice(1).map((what) => `unknown: it also depends on ${what}`);
  return linesText([...lines, "", ...depends, ...notes.map((note) => `note: ${note}`)]);
}

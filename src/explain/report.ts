/** An explanation in words: which packet is meant, whose address it goes to, what else is to be known about it. */
import { readFileSync } from "node:fs";
import { columns } from "../base/columns.js";
import { familyOf, parseAddress } from "../base/ip.js";
import type { ServicePortStatus } from "../control/types.js";
import type { Kernel } from "../kernel/types.js";
import { type ExplainedVerdict, type Explanation, explainPacket } from "./explain.js";
import type { PacketSpec, Transport } from "./packet.js";

/** RFC 5737 and 3849: addresses for documentation, which stand for a client outside. */
const OUTSIDE = { ip: "192.0.2.1", ip6: "2001:db8::1" } as const;
const SOURCE_PORT = 40_000;

const TRANSPORTS: readonly string[] = ["tcp", "udp", "sctp"] satisfies readonly Transport[];

/** Words that name no packet; the message shows the form. */
export class PacketError extends Error {
  override readonly name = "PacketError";
}

/** Of the words "[tcp|udp|sctp] [SOURCE] DESTINATION:PORT". Throws a PacketError. */
export function packetOf(words: readonly string[], inInterface: string): PacketSpec {
  const [first = ""] = words;
  const protocol = TRANSPORTS.includes(first) ? (first as Transport) : "tcp";
  const rest = TRANSPORTS.includes(first) ? words.slice(1) : words;
  const [from, to] = rest.length === 1 ? [undefined, rest[0]] : rest;
  const match = /^(?:\[(.+)\]|([^[\]]+)):(\d{1,5})$/.exec(to ?? "");
  const destination = parseAddress(match?.[1] ?? match?.[2] ?? "");
  const port = Number(match?.[3] ?? 0);
  const usage =
    "explain [tcp|udp|sctp] [SOURCE] DESTINATION:PORT, IPv6 in brackets: explain udp 10.244.0.5 10.96.0.10:53";
  if (rest.length < 1 || rest.length > 2 || destination === undefined || port < 1 || port > 65_535) {
    throw new PacketError(`${words.join(" ")}: not an address and port; ${usage}`);
  }
  const family = familyOf(destination);
  const source = from === undefined ? OUTSIDE[family] : parseAddress(from);
  if (source === undefined || familyOf(source) !== family) {
    throw new PacketError(`${from}: not an address of the destination's family; ${usage}`);
  }
  return { family, protocol, source, sourcePort: SOURCE_PORT, destination, destinationPort: port, inInterface };
}

function addressesOf({ clusterIP, externalIPs, loadBalancerIPs }: ServicePortStatus): readonly string[] {
  return [...(clusterIP === undefined ? [] : [clusterIP]), ...externalIPs, ...loadBalancerIPs];
}

/** Where a packet goes to. */
export type Addressed = Pick<PacketSpec, "family" | "protocol" | "destination" | "destinationPort">;

/** Whose address and port, or node port, it is. */
export function ownerOf(
  { family, protocol, destination, destinationPort }: Addressed,
  services: readonly ServicePortStatus[],
): ServicePortStatus | undefined {
  const same = services.filter((each) => each.family === family && each.protocol.toLowerCase() === protocol);
  return (
    same.find((each) => each.port === destinationPort && addressesOf(each).includes(destination)) ??
    same.find(({ nodePort }) => nodePort === destinationPort)
  );
}

export interface Report extends Explanation {
  readonly packet: PacketSpec;
  /** Whose address and port it is. */
  readonly service?: ServicePortStatus;
  readonly notes: readonly string[];
}

/**
 * What the kernel does with such a packet, and what else is to be known about it.
 * @param services all of this node; undefined: no daemon answers. Asked for behind the kernel.
 */
export async function reportOn(
  packet: PacketSpec,
  kernel: Kernel,
  services: () => Promise<readonly ServicePortStatus[] | undefined>,
): Promise<Report> {
  const explanation = await explainPacket(kernel, packet);
  const known = await services();
  const service = known === undefined ? undefined : ownerOf(packet, known);
  return { packet, ...(service && { service }), ...explanation, notes: notesOn(packet, explanation, known) };
}

function notesOn(
  spec: PacketSpec,
  { verdict, unknown }: Explanation,
  services: readonly ServicePortStatus[] | undefined,
): string[] {
  const notes = ["an open connection keeps the endpoint that it has: nft-proxier conntrack list"];
  if (services === undefined) notes.push("no daemon answers: which service this is cannot be said");
  else if (ownerOf(spec, services) === undefined) notes.push(...nearest(spec, services));
  if (verdict === "rejected")
    notes.push("the kernel limits such errors (net.ipv4.icmp_ratelimit): some clients see a timeout");
  const forwarding = spec.family === "ip" ? "ipv4/ip_forward" : "ipv6/conf/all/forwarding";
  if (verdict === "endpoint" && setting(forwarding) === "0") {
    notes.push(`net.${forwarding.replaceAll("/", ".")} is 0: this node forwards nothing to endpoints elsewhere`);
  }
  for (const what of unknown) notes.push(`could not be judged from outside, and was taken not to match: ${what}`);
  return notes;
}

function setting(name: string): string | undefined {
  try {
    return readFileSync(`/proc/sys/net/${name}`, "utf8").trim();
  } catch {
    return undefined;
  }
}

/** Ports that are served at this address, where this one is not. */
function nearest({ destination }: PacketSpec, services: readonly ServicePortStatus[]): string[] {
  const there = services.filter((each) => addressesOf(each).includes(destination));
  if (there.length === 0) return ["no service has this address"];
  const ports = there.map(({ namespace, name, port, protocol }) => `${port}/${protocol} of ${namespace}/${name}`);
  return [`no service has this port and protocol; served at this address: ${ports.join(", ")}`];
}

const VERDICTS: Readonly<Record<ExplainedVerdict, string>> = {
  endpoint: "goes to an endpoint",
  untouched: "is not touched: it goes where it is addressed",
  rejected: "is rejected with an error",
  dropped: "is dropped without a word",
  mixed: "depends on the endpoint that is drawn",
};

export function reportText({ packet, verdict, endpoints, steps, service, notes }: Report): string {
  const { protocol, source, destination, destinationPort } = packet;
  const lines = [`${protocol} ${source} → ${withPort(destination, destinationPort)}: ${VERDICTS[verdict]}`];
  if (service !== undefined) {
    const { namespace, name, portName, state, reason } = service;
    const port = portName === "" ? "" : `:${portName}`;
    lines.push(`service ${namespace}/${name}${port}: ${state}${reason === undefined ? "" : ` (${reason})`}`);
  }
  if (endpoints.length > 0) {
    const rows = endpoints.map(({ address, port, share, masqueraded }) => [
      "",
      withPort(address, port),
      `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`,
      masqueraded ? "sees an address of this node" : "sees the sender's address",
    ]);
    lines.push("", "endpoints", ...columns(rows));
  }
  if (steps.length > 0) {
    const rows = steps.map(({ hook, table, chain, text }) => ["", hook, table, chain, text]);
    lines.push("", endpoints.length > 1 ? "way of the first of them" : "way", ...columns(rows));
  }
  return `${[...lines, "", ...notes.map((note) => `note: ${note}`)].join("\n")}\n`;
}

export function withPort(address: string, port: number): string {
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}

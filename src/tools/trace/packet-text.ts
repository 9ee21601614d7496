/** Formats a packet in two lines. */
import { type EndpointStatus, type ServicePortStatus, serviceText } from "../../observe/status-report.js";
import { printable } from "../../base/printable.js";
import { withPort } from "../../base/ip.js";
import { type DropReason, reasonText } from "./drop-reasons.js";
import type { TracedBy, TracedPacket } from "./traced-packet.js";

/** Names of the packet's service and endpoint, from the daemon. */
export interface PacketNames {
  readonly service?: ServicePortStatus;
  readonly endpoint?: EndpointStatus;
}

export function packetText(traced: TracedPacket, { service, endpoint }: PacketNames): string {
  const { at, protocol, packet, translated, masqueraded } = traced;
  const time = timeText(at);
  const from = withPort(packet.source, packet.sourcePort);
  const to = withPort(packet.destination, packet.destinationPort);
  const name = service === undefined ? "" : ` ${serviceText(service)}`;
  const first = `${time} ${protocol} ${from} → ${to}${name}, ${cameFrom(traced)}`;
  const parts: string[] = [];
  if (translated !== undefined) {
    const whose = endpoint === undefined ? "" : endpointText(endpoint);
    parts.push(`→ ${withPort(translated.destination, translated.destinationPort)}${whose}`);
    if (masqueraded) parts.push(`masqueraded as ${withPort(translated.source, translated.sourcePort)}`);
  }
  parts.push(fateText(traced, service));
  return `${printable(first)}
${" ".repeat(time.length)} ${printable(parts.join(", "))}`;
}

/** " web-7d4b9c6d5f-x2x4q (this node)", " web-7d4b9c6d5f-x2x4q (node-2, terminating)" */
function endpointText({ pod, node = "another node", local, terminating }: EndpointStatus): string {
  const where = [local ? "this node" : node, ...(terminating ? ["terminating"] : [])];
  return `${pod === undefined ? "" : ` ${pod}`} (${where.join(", ")})`;
}

function cameFrom({ in: input }: TracedPacket): string {
  return input === undefined ? "from this node" : `in through ${input}`;
}

function fateText(traced: TracedPacket, service: ServicePortStatus | undefined): string {
  const { verdict, out, by } = traced;
  const where = by === undefined ? "" : byText(by);
  const reason = by?.reason === undefined ? "" : `: ${whyText(by.reason, traced, service)}`;
  switch (verdict) {
    case "accepted":
      return `out through ${out ?? "?"}${replyText(traced)}`;
    case "delivered":
      return `to a socket of this node${replyText(traced)}`;
    case "rejected":
      return `REJECTED by ${where}${reason}`;
    case "dropped":
      return `DROPPED by ${where}${reason}`;
    case "queued":
      return `queued to a program by ${where}`;
    case "vanished":
      return `VANISHED after ${where} accepted it; possible causes: no route, rp_filter, IP forwarding off, or rules outside nf_tables`;
    case "unknown":
      return "outcome unknown, because the kernel dropped messages or the trace ended first";
  }
}

function byText({ table, chain, hook, rule }: TracedBy): string {
  const at = hook === "" ? "" : ` at ${hook}`;
  return rule === undefined ? `the policy of ${table} ${chain}${at}` : `${table} ${chain}${at} (rule handle ${rule})`;
}

/** Names the policy's field if the service is known. */
function whyText(reason: DropReason, { packet }: TracedPacket, service: ServicePortStatus | undefined): string {
  if (reason !== "traffic-policy-local" || service === undefined) return reasonText(reason);
  const field = packet.destination === service.clusterIP ? "internalTrafficPolicy" : "externalTrafficPolicy";
  return `${field} is Local, and this node has no ready endpoint`;
}

function replyText({ reply, refusal = "" }: TracedPacket): string {
  if (reply === undefined) return "";
  switch (reply) {
    case "yes":
      return ", answered";
    case "refused":
      return `, REFUSED by the other side (${refusal})`;
    case "no":
      return ", NO ANSWER within a second";
    case "untracked":
      return ", reply unknown: the connection is not tracked";
  }
}

/** Time of day in the machine's time zone. */
function timeText(at: number): string {
  const date = new Date(at);
  const two = (value: number): string => String(value).padStart(2, "0");
  const ms = String(date.getMilliseconds()).padStart(3, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${ms}`;
}

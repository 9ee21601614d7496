/** Formats a connection, or a packet of one, in one line that ends with its outcome. */
import { type EndpointStatus, type ServicePortStatus, serviceText } from "../../observe/status-report.js";
import { printable } from "../../base/printable.js";
import { counted } from "../../base/counted.js";
import { withPort } from "../../base/ip.js";
import { REASONS } from "./drop-reasons.js";
import { isDropped, type TracedBy, type TracedPacket, type TracedReply } from "./traced-packet.js";

/** Names of the packet's service and endpoint, from the daemon. */
export interface PacketNames {
  readonly service?: ServicePortStatus;
  readonly endpoint?: EndpointStatus;
}

/** Details that a line may lack, in the order in which they are omitted until it fits. */
const DETAILS = ["interfaces", "rule", "ms", "address", "node", "masquerading", "service", "time", "port"] as const;

/** @param width maximum length. The parts that matter most may exceed it. Undefined: nothing is omitted. */
export function outcomeLine(traced: TracedPacket, names: PacketNames, width = Infinity): string {
  let line = "";
  for (let omitted = 0; omitted <= DETAILS.length; omitted++) {
    line = printable(lineWith(traced, names, new Set<string>(DETAILS.slice(omitted))));
    if (line.length <= width) break;
  }
  return line;
}

function lineWith(traced: TracedPacket, names: PacketNames, shown: ReadonlySet<string>): string {
  const { at, protocol, packet, translated, masqueraded } = traced;
  const { service, endpoint } = names;
  const time = shown.has("time") ? `${timeText(at, shown.has("ms"))} ` : "";
  const arrow = traced.direction === "reply" ? "←" : "→";
  const source = shown.has("port") ? withPort(packet.source, packet.sourcePort) : packet.source;
  const to = withPort(packet.destination, packet.destinationPort);
  const name = service === undefined || !shown.has("service") ? "" : ` ${serviceText(service)}`;
  const parts = [`${time}${protocol} ${source} ${arrow} ${to}${name}`];
  if (translated !== undefined) {
    parts[0] += ` ${arrow} ${endpointText(withPort(translated.destination, translated.destinationPort), endpoint, shown)}`;
    if (masqueraded && shown.has("masquerading"))
      parts.push(`masqueraded as ${withPort(translated.source, translated.sourcePort)}`);
  }
  if (shown.has("interfaces")) parts.push(...interfaces(traced));
  const outcome = outcomeText(traced, service, shown.has("rule"));
  return [...parts, ...factsText(traced), ...(outcome === undefined ? [] : [outcome])].join(", ");
}

/** "1500 bytes", "PSH ACK", "seq 1 ack 1", "DF" */
function factsText({ length, tcp, fragment }: TracedPacket): string[] {
  if (length === undefined) return [];
  const segment = tcp && [tcp.flags.join(" ") || "no flags", `seq ${tcp.sequence} ack ${tcp.acknowledgement}`];
  return [counted(length, "byte"), ...(segment ?? []), ...(fragment === undefined ? [] : [fragment])];
}

/** "10.244.0.5:8080 web-x2x4q (this node)", "web-x2x4q:8080 (node-2, terminating)", "web-x2x4q:8080" */
function endpointText(address: string, endpoint: EndpointStatus | undefined, shown: ReadonlySet<string>): string {
  if (endpoint === undefined) return address;
  const { pod, port, node = "another node", local, terminating } = endpoint;
  const where = [local ? "this node" : node, ...(terminating ? ["terminating"] : [])];
  const full = pod === undefined ? address : `${address} ${pod}`;
  const name = pod === undefined || shown.has("address") ? full : `${pod}:${port}`;
  return shown.has("node") ? `${name} (${where.join(", ")})` : name;
}

function interfaces({ in: input, out }: TracedPacket): string[] {
  return [input === undefined ? "from this node" : `in ${input}`, ...(out === undefined ? [] : [`out ${out}`])];
}

/** Returns undefined for a packet that says nothing new: it passed, in a connection that is answered. @param isFull whether to name the rule of this program that has a reason, and possible causes of a loss. */
function outcomeText(
  traced: TracedPacket,
  service: ServicePortStatus | undefined,
  isFull: boolean,
): string | undefined {
  const { verdict, direction, reply = "open", refusal, by } = traced;
  const [summary, line = summary] = REPLIES[reply];
  const reason = reasonOf(traced, service);
  const rule = by?.rule === undefined ? "" : ` (handle ${by.rule})`;
  switch (verdict) {
    case "rejected":
    case "dropped":
      return reason === undefined
        ? `${outcomeOf(traced)}${rule}`
        : `${verdict}${isFull ? ` by ${byText(by)}${rule}` : ""}: ${reason}`;
    case "vanished":
      return `lost after ${byText(by)}${isFull ? CAUSES : ""}`;
    case "queued":
      return `queued to a program by ${byText(by)}`;
    case "unknown":
      return "outcome unknown: messages are missing";
    default:
      if (direction === "reply" || (direction === "original" && reply === "yes")) return undefined;
      return `${line}${refusal === undefined ? "" : ` (${refusal})`}`;
  }
}

const CAUSES = "; possible causes: no route, rp_filter, IP forwarding off, or rules outside nf_tables";

/** The outcome of a connection in a summary: "answered", "dropped by inet filter forward". */
export function outcomeOf(traced: TracedPacket): string {
  const { verdict, direction, reply, by } = traced;
  if (verdict === "accepted" || verdict === "delivered")
    return direction === "reply" ? "in reply" : REPLIES[reply ?? "open"][0];
  if (verdict === "vanished") return "lost";
  if (!isDropped(traced)) return verdict;
  const reason = reasonOf(traced, undefined);
  return reason === undefined ? `${verdict} by ${byText(by)}` : `${verdict} (${reason})`;
}

/** In a summary, and in a line if that differs. */
const REPLIES: Readonly<Record<TracedReply | "open", readonly [summary: string, line?: string]>> = {
  yes: ["answered"],
  refused: ["refused"],
  no: ["unanswered", "no answer"],
  untracked: ["unknown", "answer unknown: the connection is not tracked"],
  open: ["unknown", "no answer before the trace ended"],
};

/** "inet filter forward", "the policy of inet filter forward" */
function byText(by: TracedBy | undefined): string {
  if (by === undefined) return "an unknown rule";
  const chain = `${by.table} ${by.chain}`;
  return by.rule === undefined ? `the policy of ${chain}` : chain;
}

/** Names the policy's field if the service is known. */
function reasonOf({ by, packet }: TracedPacket, service: ServicePortStatus | undefined): string | undefined {
  if (by?.reason === undefined) return undefined;
  if (by.reason !== "traffic-policy-local" || service === undefined) return REASONS[by.reason];
  const field = packet.destination === service.clusterIP ? "internalTrafficPolicy" : "externalTrafficPolicy";
  return `${field} is Local, and this node has no ready endpoint`;
}

/** Time of day in the machine's time zone. */
function timeText(at: number, withMs: boolean): string {
  const date = new Date(at);
  const [time] = date.toTimeString().split(" ");
  return withMs ? `${time}.${String(date.getMilliseconds()).padStart(3, "0")}` : time;
}

/** An explanation as text. */
import { columns, linesText } from "../../../base/columns.js";
import { withPort } from "../../../base/ip.js";
import { serviceText } from "../../../observe/status-report.js";
import type { ExplainedEndpoint, ExplainedReply, ExplainedVerdict } from "../explain-packet.js";
import type { PacketReport } from "../packet-report.js";

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
  const unmasked = endpoints.some(({ unmasqueradedBy }) => unmasqueradedBy !== undefined)
    ? ", but is not masqueraded, so answers of endpoints on other nodes may bypass this node"
    : "";
  return `${VERDICTS[verdict].replace(/^is /, "")}${limit}${unmasked}${reply === undefined ? "" : `, but ${replyText(reply)}`}`;
}

/** "the reply is dropped by inet a f: tcp sport 80 drop (handle 3)". */
function replyText({ verdict, by }: ExplainedReply): string {
  if (verdict === "unknown") return `whether the reply arrives depends on ${by}`;
  return verdict === "lost" ? `the reply is lost: ${by}` : `the reply is ${verdict} by ${by}`;
}

/** The source that an endpoint sees, or the reason why a packet or its reply does not arrive. */
function endpointText({ verdict, by, masqueraded, unmasqueradedBy, reply }: ExplainedEndpoint): string {
  if (verdict !== undefined) return by === undefined ? verdict : `${verdict} by ${by}`;
  const because = unmasqueradedBy === undefined ? "" : `, because of ${unmasqueradedBy}`;
  const sees = masqueraded ? "sees an address of this node" : `sees the sender's address${because}`;
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

/** Parses the arguments of `trace` into a filter. Pure. */
import { addressesOf, NODE_PORT } from "../../model/service-address.js";
import { IP_FAMILIES } from "../../base/ip-families.js";
import { UsageError } from "../../base/user-error.js";
import { familyOf, parseAddress, parseCIDR } from "../../base/ip.js";
import type { ServicePortStatus } from "../../observe/status-report.js";
import { type Transport, TRANSPORTS } from "../explain/machine/packet-spec.js";
import { hostAndPort, packetWords } from "../explain/packet-words.js";
import type { TraceFilter, TraceSelector } from "./trace-filter.js";

const TRACE_USAGE =
  "Usage: trace [tcp|udp|sctp] [SOURCE] DESTINATION:PORT|[NAMESPACE/]NAME[:PORT], with IPv6 addresses in brackets. Example: trace udp 10.244.0.5 10.96.0.10:53";

export interface TraceRequest {
  readonly protocols: readonly Transport[];
  /** Canonical address or CIDR. */
  readonly source?: string;
  readonly to:
    /** "[NAMESPACE/]NAME[:PORT]", or a node port. */
    | { readonly service: string }
    /** Canonical address or CIDR, or "any". */
    | { readonly destination: string; readonly port?: number };
}

/** Throws a UsageError that shows the syntax. */
export function requestOf(words: readonly string[]): TraceRequest {
  const { protocol, source: from, destination = "" } = packetWords(words);
  const to = destinationOf(destination);
  if (to === undefined)
    throw new UsageError(`${words.join(" ")} is not an address and port, or a service. ${TRACE_USAGE}`);
  const source = from === undefined ? undefined : netOf(from);
  if (from !== undefined && source === undefined)
    throw new UsageError(`${from} is not an address or network. ${TRACE_USAGE}`);
  if (
    source !== undefined &&
    "destination" in to &&
    to.destination !== "any" &&
    familyOf(source) !== familyOf(to.destination)
  )
    throw new UsageError(`${from} is not of the destination's address family. ${TRACE_USAGE}`);
  return { protocols: protocol === undefined ? TRANSPORTS : [protocol], source, to };
}

/** Returns a canonical address or CIDR. */
function netOf(text: string): string | undefined {
  return parseAddress(text) ?? parseCIDR(text)?.text;
}

/** A node port, or a name. That has a letter, because mistyped addresses are not names. */
const SERVICE = /^(?:\d{1,5}|(?=.*[a-z])(?:(?:service\/)?[a-z0-9.-]+\/)?[a-z0-9.-]+(?::[a-z0-9-]+)?)$/;

function destinationOf(text: string): TraceRequest["to"] | undefined {
  const whole = netOf(text);
  if (whole !== undefined) return { destination: whole };
  const { host = "", port } = hostAndPort(text) ?? {};
  const destination = host === "any" ? "any" : netOf(host);
  if (destination !== undefined) return { destination, port };
  return SERVICE.test(text) ? { service: text } : undefined;
}

/** Says why the request may match a great many packets. Returns undefined if it names a port of an address. */
export function broadness({ to }: TraceRequest): string | undefined {
  if ("service" in to) return undefined;
  if (to.destination === "any")
    return to.port === undefined ? "all traffic of this node" : `all traffic to port ${to.port}`;
  if (to.port === undefined) return `traffic to all ports of ${to.destination}`;
  return to.destination.includes("/") ? `traffic to all addresses of ${to.destination}` : undefined;
}

/** @param services the ports that the request names. Throws a UsageError if it can select none of their packets. */
export function filterOf(
  { protocols, source, to }: TraceRequest,
  services: readonly ServicePortStatus[],
  allPackets: boolean,
): TraceFilter {
  const families = source === undefined ? IP_FAMILIES : [familyOf(source)];
  if ("service" in to) {
    const selectors = services
      .flatMap((service) => [...addressesOf(service.family, service)])
      .map(({ family, protocol, address, port }): TraceSelector => {
        const destination = address === NODE_PORT ? "node" : address;
        return { family, protocols: [protocol.toLowerCase() as Transport], destination, port };
      })
      .filter(({ family, protocols: [own] }) => families.includes(family) && protocols.includes(own));
    if (selectors.length === 0)
      throw new UsageError(`${to.service} has no port of this protocol and address family, or no address`);
    return { selectors, allPackets, source };
  }
  const any = to.destination === "any";
  const selectors = (any ? families : [familyOf(to.destination)]).map((family) => ({ family, protocols, ...to }));
  return { selectors, allPackets, source };
}

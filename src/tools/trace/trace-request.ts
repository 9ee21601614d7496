/** Parses the arguments of `trace` into a filter. Pure. */
import { vipsOf } from "../../model/service-address.js";
import { IP_FAMILIES } from "../../base/ip-families.js";
import { familyOf, parseAddress, parseCIDR } from "../../base/ip.js";
import type { ServicePortStatus } from "../../observe/status-report.js";
import { type Transport, TRANSPORTS } from "../explain/packet-spec.js";
import type { TraceFilter, TraceSelector } from "./trace-filter.js";

/** Arguments that select no packets, or too many. The message names the error. */
export class RequestError extends Error {
  override readonly name = "RequestError";
}

const TRACE_USAGE =
  "Usage: trace [tcp|udp|sctp] [SOURCE] DESTINATION:PORT|NAMESPACE/NAME[:PORT], with IPv6 addresses in brackets. Example: trace udp 10.244.0.5 10.96.0.10:53";

export interface TraceRequest {
  readonly protocols: readonly Transport[];
  /** Canonical address or CIDR. */
  readonly source?: string;
  readonly to:
    | { readonly service: readonly [namespace: string, name: string]; readonly port?: string }
    /** Canonical address or CIDR, or "any". */
    | { readonly destination: string; readonly port?: number };
}

/** Throws a RequestError that shows the syntax. */
export function requestOf(words: readonly string[]): TraceRequest {
  const [first = ""] = words;
  const protocol = TRANSPORTS.find((each) => each === first);
  const rest = protocol === undefined ? words : words.slice(1);
  const [from, last] = rest.length === 1 ? [undefined, rest[0]] : rest;
  const to = rest.length > 2 || last === undefined ? undefined : destinationOf(last);
  if (to === undefined)
    throw new RequestError(`${words.join(" ")} is not an address and port, or a service. ${TRACE_USAGE}`);
  const source = from === undefined ? undefined : netOf(from);
  if (from !== undefined && source === undefined)
    throw new RequestError(`${from} is not an address or network. ${TRACE_USAGE}`);
  if (
    source !== undefined &&
    "destination" in to &&
    to.destination !== "any" &&
    familyOf(source) !== familyOf(to.destination)
  )
    throw new RequestError(`${from} is not of the destination's address family. ${TRACE_USAGE}`);
  return { protocols: protocol === undefined ? TRANSPORTS : [protocol], source, to };
}

/** Returns a canonical address or CIDR. */
function netOf(text: string): string | undefined {
  return parseAddress(text) ?? parseCIDR(text)?.text;
}

function destinationOf(text: string): TraceRequest["to"] | undefined {
  const whole = netOf(text);
  if (whole !== undefined) return { destination: whole };
  const service = /^([a-z0-9.-]+)\/([a-z0-9.-]+?)(?::([a-z0-9-]+))?$/.exec(text);
  const match = /^(?:\[(.+)\]|([^[\]]+?))(?::(\d{1,5}))?$/.exec(text);
  const host = match?.[1] ?? match?.[2] ?? "";
  const destination = host === "any" ? "any" : netOf(host);
  const port = match?.[3] === undefined ? undefined : Number(match[3]);
  if (destination !== undefined && (port === undefined || (port > 0 && port < 65_536))) return { destination, port };
  const [, namespace, name, servicePort] = service ?? [];
  if (namespace === undefined || name === undefined) return undefined;
  return { service: [namespace, name], port: servicePort };
}

/** Says why the request may match a great many packets. Returns undefined if it names a port of an address. */
export function broadness({ to }: TraceRequest): string | undefined {
  if ("service" in to) return undefined;
  if (to.destination === "any")
    return to.port === undefined ? "all traffic of this node" : `all traffic to port ${to.port}`;
  if (to.port === undefined) return `traffic to all ports of ${to.destination}`;
  return to.destination.includes("/") ? `traffic to all addresses of ${to.destination}` : undefined;
}

/** @param services ports of the service that the request names. Throws a RequestError if there is none. */
export function filterOf(
  { protocols, source, to }: TraceRequest,
  services: readonly ServicePortStatus[],
  allPackets: boolean,
): TraceFilter {
  const more = { allPackets, source };
  const families = source === undefined ? IP_FAMILIES : [familyOf(source)];
  if ("destination" in to) {
    const { destination, port } = to;
    const ports = port === undefined ? [] : [port];
    const any = destination === "any";
    const selectors = (any ? families : [familyOf(destination)]).map((family): TraceSelector => ({
      family,
      protocols,
      destinations: any ? "any" : [destination],
      ports,
    }));
    return { selectors, ...more };
  }
  const meant = services.filter(
    ({ family, protocol, port, portName }) =>
      families.includes(family) &&
      protocols.some((each) => each === protocol.toLowerCase()) &&
      (to.port === undefined || to.port === String(port) || to.port === portName),
  );
  if (meant.length === 0)
    throw new RequestError(`${to.service.join("/")} has no such port; its ports are ${portsOf(services)}`);
  return { selectors: meant.flatMap(selectorsOf), ...more };
}

function portsOf(services: readonly ServicePortStatus[]): string {
  return [...new Set(services.map(({ portName, port, protocol }) => `${port}/${protocol} ${portName}`.trim()))].join(
    ", ",
  );
}

function selectorsOf(service: ServicePortStatus): TraceSelector[] {
  const { family, port, nodePort } = service;
  const protocols = TRANSPORTS.filter((each) => each === service.protocol.toLowerCase());
  const destinations = vipsOf(service);
  return [
    ...(destinations.length === 0 ? [] : [{ family, protocols, destinations, ports: [port] }]),
    ...(nodePort === 0 ? [] : [{ family, protocols, destinations: "node", ports: [nodePort] } as const]),
  ];
}

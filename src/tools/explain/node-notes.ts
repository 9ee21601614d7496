/**
 * Notes on facts of this node other than rules that affect a packet: settings, routes, connection tracking. Nothing here
 * rejects.
 */
import {
  conntrackFill,
  conntrackFull,
  forwardingOff,
  forwardingOffAt,
  readSysctl,
} from "../../node/packet-settings.js";
import { routeTo } from "../../node/routes.js";
import type { ExplainedVerdict, Explanation } from "./explain-packet.js";
import type { PacketSpec } from "./packet-spec.js";
import { named } from "./service-notes.js";
import type { Routing } from "./world/routing.js";

/** Maximum number of endpoints whose routes are looked up. */
const MOST_ROUTES = 16;
/** Type 3, destination unreachable, in the mask of types that icmp_ratelimit applies to (net/ipv4/icmp.c). */
const UNREACHABLE = 1 << 3;

interface Surroundings {
  readonly notes: readonly string[];
  /** Reasons why packets do not arrive, whatever the rules do. Empty if none is known. */
  readonly obstacles: readonly string[];
}

/** A packet, its explanation, and facts about its sender. */
interface Around {
  readonly packet: PacketSpec;
  readonly explanation: Explanation;
  readonly routing: Routing;
  /** The verdict if no rule that cannot be evaluated matches. */
  readonly fate: ExplainedVerdict;
  /** Whether the packet is from this node. */
  readonly isOwn: boolean;
  /** The incoming interface. If it was not given, that of the route back. Undefined if it is unknown. */
  readonly device: string | undefined;
}

/** Notes about the node's settings, routes and connection tracking. */
export async function nodeNotes(packet: PacketSpec, explanation: Explanation, routing: Routing): Promise<Surroundings> {
  const { verdict, otherwise: fate = verdict } = explanation;
  const { source, inInterface } = packet;
  const isOwn = inInterface === "" && (await isHere(source, routing));
  const device = inInterface || (await interfaceOf(source, routing));
  const around = { packet, explanation, routing, fate, isOwn, device };
  const lost = await withoutRoute(around);
  const isAllLost = new Set(explanation.endpoints.map(({ address }) => address)).size === lost.length;
  const back = await reversePath(packet);
  const them = lost.length === 1 ? "it" : "them";
  return {
    obstacles: [
      ...(inInterface === "" ? [] : back),
      ...(await notForwarded(around)),
      ...(await ownAway(around)),
      ...(lost.length > 0 && isAllLost ? [`there is no route to ${named(lost)}`] : []),
      ...(await untouchedAway(around)),
    ],
    notes: [
      ...(await rejections(around)),
      ...(lost.length > 0 && !isAllLost
        ? [`there is no route to ${named(lost)}, so packets to ${them} do not arrive; check with \`ip route get\``]
        : []),
      ...(await unansweredForwards(around)),
      ...(inInterface === "" ? back : []),
      ...(await fullTable()),
    ],
  };
}

/** Without an answer, assume that the address is not here. */
async function isHere(address: string, routing: Routing): Promise<boolean> {
  return routing.hasAddress(address).catch(() => false);
}

async function interfaceOf(source: string, routing: Routing): Promise<string | undefined> {
  const route = await routing.route(source);
  return typeof route === "string" ? undefined : route.interfaceName;
}

async function rejections({ packet: { family }, explanation: { verdict, steps } }: Around): Promise<string[]> {
  if (verdict !== "rejected" || !steps.some(({ text }) => text.includes("ICMP"))) return [];
  const name = family === "ip" ? "net.ipv4.icmp_ratelimit" : "net.ipv6.icmp.ratelimit";
  const [limit, mask] = await Promise.all([readSysctl(name), readSysctl("net.ipv4.icmp_ratemask")]);
  if (limit === 0 || (family === "ip" && mask !== undefined && (mask & UNREACHABLE) === 0)) return [];
  return [
    `the kernel limits the rate of ICMP errors (${name} is ${limit ?? "not readable"}), so some clients see a timeout instead`,
  ];
}

/** Only for packets from elsewhere, because packets from this node need no forwarding. */
async function notForwarded({ packet, explanation, routing, fate, isOwn, device = "" }: Around): Promise<string[]> {
  if (fate !== "endpoint" || isOwn) return [];
  const off = (await forwardingOff(packet.family)) ?? (await forwardingOffAt(packet.family, device));
  if (off === undefined) return [];
  for (const { address } of explanation.endpoints) if (await isHere(address, routing)) return [];
  return [`${off.what}; ${off.remedy}`];
}

/** A program on this node gets an error if there is no route to the address that it connects to, before any rule. */
async function ownAway({ packet: { source, destination }, routing, isOwn }: Around): Promise<string[]> {
  if (!isOwn || (await routing.policyRoute(destination, { source })) !== "none") return [];
  return [`this node has no route to ${destination}, so its programs cannot connect to it`];
}

/** Interfaces of endpoints that do not forward the replies. */
async function unansweredForwards({ packet, explanation, routing, isOwn }: Around): Promise<string[]> {
  if (isOwn) return [];
  const some = explanation.endpoints.slice(0, MOST_ROUTES);
  const names = await Promise.all(some.map(({ address }) => routing.interfaceTo(address)));
  const notes: string[] = [];
  for (const name of new Set(names)) {
    const off = name === undefined || name === "lo" ? undefined : await forwardingOffAt(packet.family, name);
    if (off !== undefined) notes.push(`${off.what}, such as replies of endpoints; ${off.remedy}`);
  }
  return notes;
}

/** Returns the addresses of endpoints to which there is no route. */
async function withoutRoute({ packet, explanation, routing, isOwn, device }: Around): Promise<string[]> {
  const { source } = packet;
  const addresses = [...new Set(explanation.endpoints.map(({ address }) => address))].slice(0, MOST_ROUTES);
  const from = isOwn ? { source } : { source, inInterface: device };
  const routes = await Promise.all(addresses.map((address) => routing.policyRoute(address, from)));
  return addresses.filter((_, i) => routes[i] === "none");
}

/** For a packet that goes where it was addressed. */
async function untouchedAway({ packet: { destination }, routing, fate }: Around): Promise<string[]> {
  if (fate !== "untouched" || (await routing.route(destination)) !== "none") return [];
  return [`there is no route to ${destination}`];
}

const STRICT = 1;
const LOOSEN = "Correct the route, or run `sysctl -w net.ipv4.conf.all.rp_filter=2`";

/**
 * Packets that the kernel drops before any rule because of their source (net/ipv4/fib_frontend.c, fib_validate_source);
 * only IPv4.
 */
async function reversePath({ family, source, inInterface }: PacketSpec): Promise<string[]> {
  if (family !== "ip" || (await reversePathMode(inInterface)) !== STRICT) return [];
  const back = await routeTo(source);
  const strict = "rp_filter is strict";
  if (back === "unknown" || (back !== "none" && back.interfaceName === inInterface)) return [];
  if (back === "none")
    return [
      `${strict} and there is no route back to ${source}, so packets from there are dropped before the rules. ${LOOSEN}`,
    ];
  return inInterface === ""
    ? [`${strict}, so packets from ${source} are dropped unless they arrive on ${back.interfaceName}. ${LOOSEN}`]
    : [`${strict} and requires packets from ${source} to arrive on ${back.interfaceName}. ${LOOSEN}`];
}

/** The larger of the two settings applies. 2 is loose. */
async function reversePathMode(inInterface: string): Promise<number> {
  const names = ["all", ...(inInterface === "" ? [] : [inInterface])];
  const values = await Promise.all(names.map((name) => readSysctl(`net.ipv4.conf.${name}.rp_filter`)));
  return Math.max(...values.map((value) => value ?? 0));
}

async function fullTable(): Promise<string[]> {
  const full = conntrackFull(await conntrackFill());
  return full === undefined ? [] : [full.what];
}

/**
 * Notes on facts of this node other than rules that affect a packet: settings, routes, connection tracking. Nothing here
 * rejects.
 */
import { someOf } from "../../base/counted.js";
import {
  conntrackFill,
  conntrackFull,
  forwardingOff,
  forwardingOffAt,
  readSysctl,
} from "../../node/packet-settings.js";
import type { Explanation } from "./explain-packet.js";
import type { PacketSpec } from "./machine/packet-spec.js";
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

/** Notes about the node's settings, routes and connection tracking. */
export async function nodeNotes(packet: PacketSpec, explanation: Explanation, routing: Routing): Promise<Surroundings> {
  const { family, source, destination, inInterface } = packet;
  const { verdict, otherwise: fate = verdict } = explanation;
  // Without an answer, assume that the address is not here.
  const isHere = (address: string): Promise<boolean> => routing.hasAddress(address).catch(() => false);
  const isOwn = inInterface === "" && (await isHere(source));
  const sender = await routing.route(source);
  const device = inInterface || (typeof sender === "string" ? undefined : sender.interfaceName);
  const addresses = [...new Set(explanation.endpoints.map(({ address }) => address))];
  const tried = addresses.slice(0, MOST_ROUTES);
  const from = isOwn ? { source } : { source, inInterface: device };
  const routes = await Promise.all(tried.map((address) => routing.policyRoute(address, from)));
  const lost = tried.filter((_, i) => routes[i] === "none");
  const isAllLost = addresses.length === lost.length;
  const back = isOwn ? [] : await reversePath(packet, sender);
  const [obstacles, notes]: [string[], string[]] = [[], []];
  if (inInterface !== "") obstacles.push(...back);
  // Packets from this node need no forwarding.
  if (fate === "endpoint" && !isOwn) {
    const off = (await forwardingOff(family)) ?? (await forwardingOffAt(family, device ?? ""));
    const areHere = await Promise.all(addresses.map(isHere));
    if (off !== undefined && !areHere.includes(true)) obstacles.push(`${off.what}; ${off.remedy}`);
  }
  // A program on this node gets an error if there is no route to the address that it connects to, before any rule.
  if (isOwn && (await routing.policyRoute(destination, { source })) === "none")
    obstacles.push(`this node has no route to ${destination}, so its programs cannot connect to it`);
  if (lost.length > 0 && isAllLost) obstacles.push(`there is no route to ${someOf(lost)}`);
  if (fate === "untouched" && (await routing.route(destination)) === "none")
    obstacles.push(`there is no route to ${destination}`);
  notes.push(...(await rejections(packet, explanation)));
  if (lost.length > 0 && !isAllLost) {
    const them = lost.length === 1 ? "it" : "them";
    notes.push(
      `there is no route to ${someOf(lost)}, so packets to ${them} do not arrive; check with \`ip route get\``,
    );
  }
  const names = isOwn ? [] : await Promise.all(tried.map((address) => routing.interfaceTo(address)));
  for (const name of new Set(names)) {
    const off = name === undefined || name === "lo" ? undefined : await forwardingOffAt(family, name);
    if (off !== undefined) notes.push(`${off.what}, such as replies of endpoints; ${off.remedy}`);
  }
  if (inInterface === "") notes.push(...back);
  const full = conntrackFull(await conntrackFill());
  if (full !== undefined) notes.push(full.what);
  return { obstacles, notes };
}

async function rejections({ family }: PacketSpec, { verdict, steps }: Explanation): Promise<string[]> {
  if (verdict !== "rejected" || !steps.some(({ text }) => text.includes("ICMP"))) return [];
  const name = family === "ip" ? "net.ipv4.icmp_ratelimit" : "net.ipv6.icmp.ratelimit";
  const [limit, mask] = await Promise.all([readSysctl(name), readSysctl("net.ipv4.icmp_ratemask")]);
  if (limit === 0 || (family === "ip" && mask !== undefined && (mask & UNREACHABLE) === 0)) return [];
  return [
    `the kernel limits the rate of ICMP errors (${name} is ${limit ?? "not readable"}), so some clients see a timeout instead`,
  ];
}

const STRICT = 1;
const LOOSEN = "Correct the route, or run `sysctl -w net.ipv4.conf.all.rp_filter=2`";

/**
 * Packets that the kernel drops before any rule because of their source (net/ipv4/fib_frontend.c, fib_validate_source);
 * only IPv4. The larger of the two settings applies. 2 is loose.
 */
async function reversePath(
  { family, source, inInterface }: PacketSpec,
  back: Awaited<ReturnType<Routing["route"]>>,
): Promise<string[]> {
  const names = ["all", ...(inInterface === "" ? [] : [inInterface])];
  const modes = await Promise.all(names.map((name) => readSysctl(`net.ipv4.conf.${name}.rp_filter`)));
  const isStrict = Math.max(...modes.map((mode) => mode ?? 0)) === STRICT;
  if (family !== "ip" || !isStrict || back === "unknown") return [];
  const strict = "rp_filter is strict";
  if (back === "none")
    return [
      `${strict} and there is no route back to ${source}, so packets from there are dropped before the rules. ${LOOSEN}`,
    ];
  const { interfaceName } = back;
  if (interfaceName === inInterface) return [];
  return inInterface === ""
    ? [`${strict}, so packets from ${source} are dropped unless they arrive on ${interfaceName}. ${LOOSEN}`]
    : [`${strict} and requires packets from ${source} to arrive on ${interfaceName}. ${LOOSEN}`];
}

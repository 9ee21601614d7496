/**
 * Settings of this network namespace's kernel, besides the rules, that decide what happens to packets. They are read on
 * request. Nothing here throws.
 */
import type { IpFamily } from "../base/ip.js";
import { percentText } from "../base/percent.js";
import { readNumber } from "./kernel-number.js";

/** Entries of the connection tracking table, and its capacity. */
export interface ConntrackFill {
  readonly entries: number;
  readonly max: number;
}

/** Share of used entries from which on the connection tracking table counts as full. */
const CONNTRACK_FULL = 0.95;

/** The sysctl without which a node forwards nothing. */
export const FORWARDING: Readonly<Record<IpFamily, string>> = {
  ip: "net.ipv4.ip_forward",
  ip6: "net.ipv6.conf.all.forwarding",
};

/** Returns undefined if the kernel has no connection tracker loaded. */
export async function conntrackFill(root = "/"): Promise<ConntrackFill | undefined> {
  const [entries, max] = await Promise.all([
    readSysctl("net.netfilter.nf_conntrack_count", root),
    readSysctl("net.netfilter.nf_conntrack_max", root),
  ]);
  return entries === undefined || max === undefined ? undefined : { entries, max };
}

/** A problem, and how to fix it. */
export interface Shortcoming {
  readonly what: string;
  readonly remedy: string;
}

/** How to fix a connection tracking table that fills up. */
export const CONNTRACK_REMEDY =
  "raise net.netfilter.nf_conntrack_max (conntrack.maxPerCore or conntrack.min in the configuration), or shorten the " +
  "timeouts there. `nft-proxier conntrack count --by source` shows which sources fill the table";

/** The kernel makes room like this for a new connection if no entry is free (early_drop, net/netfilter/nf_conntrack_core.c). */
export const CONNTRACK_EVICTION =
  "the kernel ends a connection that is not assured, such as an unanswered one, for each new one; if it finds none, it drops the new one";

/** Returns undefined if enough entries are left. */
export function conntrackFull(fill: ConntrackFill | undefined): Shortcoming | undefined {
  if (fill === undefined) return undefined;
  const { entries, max } = fill;
  if (max === 0 || entries < CONNTRACK_FULL * max) return undefined;
  const of = `(${entries} of ${max})`;
  const what =
    entries >= max
      ? `the connection tracking table is full ${of}: ${CONNTRACK_EVICTION}`
      : `the connection tracking table is ${percentText(entries, max)} full ${of}. When it is full, ${CONNTRACK_EVICTION}`;
  return { what, remedy: CONNTRACK_REMEDY };
}

/** Returns undefined if this node forwards the family's packets, or its setting cannot be read. */
export async function forwardingOff(family: IpFamily, root = "/"): Promise<Shortcoming | undefined> {
  const name = FORWARDING[family];
  if ((await readSysctl(name, root)) !== 0) return undefined;
  const remedy = `run \`sysctl -w ${name}=1\`, and make it permanent in /etc/sysctl.d`;
  return { what: `IP forwarding is off (${name} is 0), so this node forwards no packets`, remedy };
}

/**
 * Returns undefined if this node forwards the packets that an interface receives, or its setting cannot be read. Linux
 * has such a setting only for IPv4.
 */
export async function forwardingOffAt(family: IpFamily, name: string): Promise<Shortcoming | undefined> {
  // A name may have a dot, which sysctl(8) writes as a slash.
  const setting = `net.ipv4.conf.${name.replaceAll(".", "/")}.forwarding`;
  if (
    family !== "ip" ||
    name === "" ||
    (await readNumber({ root: "/" }, `proc/sys/net/ipv4/conf/${name}/forwarding`)) !== 0
  )
    return undefined;
  const remedy = `run \`sysctl -w ${setting}=1\``;
  return {
    what: `IP forwarding is off on ${name} (${setting} is 0), so this node forwards no packets from there`,
    remedy,
  };
}

/** Returns undefined if no sysctl has this name, or it may not be read. */
export function readSysctl(name: string, root = "/"): Promise<number | undefined> {
  return readNumber({ root }, `proc/sys/${name.replaceAll(".", "/")}`);
}

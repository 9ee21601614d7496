/** What of this network namespace's kernel decides over packets beside the rules. Read when asked for; nothing here throws. */
import type { IpFamily } from "../model/types.js";
import { readNumber } from "./kernel-number.js";

export interface ConntrackFill {
  readonly entries: number;
  readonly max: number;
}

/** From this share on it is a problem how full the connection tracking table is. */
export const CONNTRACK_FULL = 0.95;

/** The sysctl without which a node passes nothing on. */
export const FORWARDING: Readonly<Record<IpFamily, string>> = {
  ip: "net.ipv4.ip_forward",
  ip6: "net.ipv6.conf.all.forwarding",
};

/** Undefined: the kernel has no connection tracker loaded. */
export async function conntrackFill(root = "/"): Promise<ConntrackFill | undefined> {
  const [entries, max] = await Promise.all([
    readSysctl("net.netfilter.nf_conntrack_count", root),
    readSysctl("net.netfilter.nf_conntrack_max", root),
  ]);
  return entries === undefined || max === undefined ? undefined : { entries, max };
}

export function isFull({ entries, max }: ConntrackFill): boolean {
  return max > 0 && entries >= CONNTRACK_FULL * max;
}

/** In words: new connections are dropped when no entry is free, not before. */
export function fillText({ entries, max }: ConntrackFill): string {
  const of = `(${entries} of ${max})`;
  if (entries >= max) return `the connection tracking table is full ${of}: new connections are dropped`;
  const percent = Math.floor((100 * entries) / max);
  return `the connection tracking table is ${percent} % full ${of}: new connections are dropped when it is full`;
}

/** Undefined: there is none of this name, or it may not be read. */
export function readSysctl(name: string, root = "/"): Promise<number | undefined> {
  return readNumber({ root }, `proc/sys/${name.replaceAll(".", "/")}`);
}

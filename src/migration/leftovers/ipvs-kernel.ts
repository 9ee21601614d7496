/** What `ipvsPass` asks of this node's kernel. */
import { existsSync } from "node:fs";
import { endianness } from "node:os";
import { join } from "node:path";
import { formatAddress } from "../../base/ip.js";
import type { NetlinkExchange } from "../../netlink/exchange.js";
import { IpsetTable } from "../../netlink/ipset.js";
import { IpvsTable } from "../../netlink/ipvs.js";
import { LinkTable } from "../../netlink/links.js";
import type { IpvsKernel } from "./ipvs-pass.js";
import { readText } from "./proc-file.js";

/** Asks only what is loaded: generic netlink and nfnetlink load a module whose name is asked for. `root`: where /proc and /sys are. */
export function ipvsKernel(netlink: NetlinkExchange, root: string): IpvsKernel {
  return {
    ipvs: existsSync(join(root, "proc/net/ip_vs")) ? new IpvsTable(netlink) : undefined,
    // It has a parameter (max_sets), so that this is there also where it is built in.
    ipset: existsSync(join(root, "sys/module/ip_set")) ? new IpsetTable(netlink) : undefined,
    links: new LinkTable(netlink),
    socketAddresses: () => socketAddresses(root),
  };
}

/** net/tcp_states.h: a socket in these has no connection that an address would have to stay for. */
const TCP_TIME_WAIT = "06";
const TCP_CLOSE = "07";
const TCP_LISTEN = "0A";
const WITHOUT_CONNECTION: readonly string[] = [TCP_TIME_WAIT, TCP_CLOSE, TCP_LISTEN];

/** Addresses of connected sockets in this network namespace, canonical; of IPv6 sockets with an IPv4 address, that. */
export async function socketAddresses(root: string): Promise<ReadonlySet<string>> {
  const found = new Set<string>();
  for (const file of ["tcp", "tcp6", "udp", "udp6"]) {
    // "  0: 0A00600A:1F90 0100007F:C350 01 …": local address, remote address, state.
    for (const line of (await readText(root, `proc/net/${file}`)).split("\n")) {
      const [, local, , state = ""] = line.trim().split(/\s+/, 4);
      if (local === undefined || WITHOUT_CONNECTION.includes(state)) continue;
      const bytes = socketAddress(local.split(":", 1)[0] ?? "");
      if (bytes !== undefined) found.add(formatAddress(bytes));
    }
  }
  return found;
}

/** Words of 32 bits in the host's byte order (net/ipv4/tcp_ipv4.c, get_tcp4_sock). */
function socketAddress(hex: string): Uint8Array | undefined {
  if (!/^(?:[0-9A-F]{8}|[0-9A-F]{32})$/.test(hex)) return undefined;
  const bytes = Buffer.from(hex, "hex");
  if (endianness() === "LE") bytes.swap32();
  const mapped = bytes.length === 16 && bytes.readBigUInt64BE(0) === 0n && bytes.readUInt32BE(8) === 0xffff;
  return mapped ? bytes.subarray(12) : bytes;
}

/** The kernel interface that `ipvsPass` uses on this node. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { LITTLE_ENDIAN } from "../../base/byte-order.js";
import { formatAddress } from "../../base/ip.js";
import type { NetlinkExchange } from "../../nft/kernel/netlink-message.js";
import { IpsetTable } from "../../netlink/ipset-table.js";
import { IpvsTable } from "../../netlink/ipvs-table.js";
import { LinkTable } from "../../netlink/link-table.js";
import type { IpvsKernel } from "./ipvs-pass.js";
import { readText } from "../../node/proc-file.js";

/**
 * Uses only loaded modules, because generic netlink and nfnetlink load a module that is asked for. `root` contains
 * /proc and /sys.
 */
export function ipvsKernel(netlink: NetlinkExchange, root = "/"): IpvsKernel {
  return {
    ipvs: existsSync(join(root, "proc/net/ip_vs")) ? new IpvsTable(netlink) : undefined,
    // The module has a parameter (max_sets), so this directory exists even if the module is built in.
    ipset: existsSync(join(root, "sys/module/ip_set")) ? new IpsetTable(netlink) : undefined,
    links: new LinkTable(netlink),
    socketAddresses: () => socketAddresses(root),
  };
}

/** States from net/tcp_states.h in which a socket has no connection that needs its address. */
const TCP_TIME_WAIT = "06";
const TCP_CLOSE = "07";
const TCP_LISTEN = "0A";
const WITHOUT_CONNECTION: readonly string[] = [TCP_TIME_WAIT, TCP_CLOSE, TCP_LISTEN];

/**
 * Canonical addresses of connected sockets in this network namespace. An IPv4 address of an IPv6 socket counts as IPv4.
 */
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

/** Parses 32-bit words in the host's byte order (net/ipv4/tcp_ipv4.c, get_tcp4_sock). */
function socketAddress(hex: string): Uint8Array | undefined {
  if (!/^(?:[0-9A-F]{8}|[0-9A-F]{32})$/.test(hex)) return undefined;
  const bytes = Buffer.from(hex, "hex");
  if (LITTLE_ENDIAN) bytes.swap32();
  const mapped = bytes.length === 16 && bytes.readBigUInt64BE(0) === 0n && bytes.readUInt32BE(8) === 0xffff;
  return mapped ? bytes.subarray(12) : bytes;
}

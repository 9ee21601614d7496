/** The kernel interface that `ipvsPass` uses on this node. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { NetlinkExchange } from "../../nft/kernel/netlink-message.js";
import { IpsetTable } from "../../netlink/ipset-table.js";
import { IpvsTable } from "../../netlink/ipvs-table.js";
import { LinkTable } from "../../netlink/link-table.js";
import type { IpvsKernel } from "./ipvs-pass.js";
import { readSockets } from "../../node/socket-listeners.js";

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

/** Canonical addresses of connected sockets in this network namespace. */
export async function socketAddresses(root: string): Promise<ReadonlySet<string>> {
  const sockets = await Promise.all([readSockets(root, "tcp"), readSockets(root, "udp")]);
  const connected = sockets.flat().filter(({ state }) => !WITHOUT_CONNECTION.includes(state));
  return new Set(connected.map(({ address }) => address));
}

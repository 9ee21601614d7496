/** Finds the processes that listen on this node's TCP and UDP ports, from /proc. Nothing here throws. */
import { readdir, readFile, readlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { LITTLE_ENDIAN } from "../base/byte-order.js";
import { formatAddress, parseAddress } from "../base/ip.js";
import { readText } from "./proc-file.js";

export interface Listener {
  /** Canonical. "0.0.0.0" and "::" mean all addresses. */
  readonly address: string;
  readonly port: number;
  /** Inode of the socket, which /proc/PID/fd links to. */
  readonly inode: string;
}

export interface Socket extends Listener {
  /** TCP_ESTABLISHED and so on of net/tcp_states.h, as the tables print it: "01". */
  readonly state: string;
}

/** TCP_LISTEN, and TCP_CLOSE, which unconnected UDP sockets have. */
const LISTENING = { tcp: "0A", udp: "07" } as const;
type SocketProtocol = keyof typeof LISTENING;

/** The sockets of one network namespace that accept connections or packets from anywhere. */
export async function readListeners(root = "/", protocol: SocketProtocol = "tcp"): Promise<Listener[]> {
  return (await readSockets(root, protocol)).filter(({ state }) => state === LISTENING[protocol]);
}

/**
 * Reads this network namespace's /proc/net/tcp and tcp6 (net/ipv4/tcp_ipv4.c, get_tcp4_sock), or those of UDP. An IPv4
 * address of an IPv6 socket counts as IPv4.
 */
export async function readSockets(root: string, protocol: SocketProtocol): Promise<Socket[]> {
  const texts = await Promise.all([protocol, `${protocol}6`].map((name) => readText(root, `proc/net/${name}`)));
  return texts.flatMap((text) => text.split("\n").flatMap((line) => socketOf(line) ?? []));
}

function socketOf(line: string): Socket | undefined {
  const [, local = "", , state = "", , , , , , inode = ""] = line.trim().split(/\s+/);
  const [, address = "", port = ""] = /^([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})$/.exec(local) ?? [];
  if (address === "") return undefined;
  const bytes = Buffer.from(address, "hex");
  // The kernel prints 32-bit words as numbers.
  if (LITTLE_ENDIAN) bytes.swap32();
  const text = formatAddress(bytes);
  return { address: parseAddress(text) ?? text, port: Number.parseInt(port, 16), inode, state };
}

/**
 * Returns name and number of the process that has the socket open. Returns undefined if this /proc does not show one or
 * denies access.
 */
export async function processWith(inode: string, root = "/"): Promise<{ pid: number; name: string } | undefined> {
  const pids = (await readdir(join(root, "proc")).catch(() => [])).filter((name) => /^\d+$/.test(name));
  for (const pid of pids) {
    const fds = await readdir(join(root, "proc", pid, "fd")).catch(() => []);
    for (const fd of fds) {
      const target = await readlink(join(root, "proc", pid, "fd", fd)).catch(() => "");
      if (target !== `socket:[${inode}]`) continue;
      const name = await readFile(join(root, "proc", pid, "comm"), "utf8").catch(() => "");
      return { pid: Number(pid), name: name.trim() };
    }
  }
  return undefined;
}

/**
 * Finds the process that listens on a unix socket in the same directory, under a name of the form ".PID". A daemon's socket
 * gets its own name only after that. Returns undefined unless this network namespace has exactly one.
 */
export async function listenerBeside(path: string): Promise<{ pid: number; name: string } | undefined> {
  const text = await readFile("/proc/self/net/unix", "latin1").catch(() => "");
  // Num RefCount Protocol Flags Type St Inode Path (net/unix/af_unix.c, unix_seq_show). the listening flag, SOCK_STREAM, SS_UNCONNECTED.
  const listening = Array.from(text.matchAll(/ 00010000 0001 01 +(\d+) (.*)\/\.\d+$/gm), ([, inode = "", of]) => ({
    inode,
    of,
  }));
  const [found, ...more] = listening.filter(({ of }) => of === dirname(path));
  return found === undefined || more.length > 0 ? undefined : processWith(found.inode);
}

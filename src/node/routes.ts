/** Routes of this network namespace as /proc shows them: the main table for IPv4, every table for IPv6. */
import { open } from "node:fs/promises";
import { join } from "node:path";
import { LITTLE_ENDIAN } from "../base/byte-order.js";
import { formatAddress, parseCIDR, type Prefix } from "../base/ip.js";

/** linux/route.h, linux/ipv6_route.h */
const RTF_UP = 0x1;
const RTF_REJECT = 0x200;
const RTF_ANYCAST = 0x100000;
const RTF_LOCAL = 0x80000000;
/** Bytes of each file that `readRoutes` reads: about 30,000 routes. */
const MOST_BYTES = 4 << 20;

interface Route {
  readonly network: Uint8Array;
  readonly prefixLength: number;
  readonly interfaceName: string;
  readonly flags: number;
}

export interface RouteNetwork {
  readonly prefix: Prefix;
  readonly interfaceName: string;
}

/**
 * Routes of both families that lead out of this node, up to some ten thousand. Default routes, routes of the node's own
 * addresses, and routes that reject packets are skipped. Empty if the routes cannot be read.
 */
export async function readRoutes(root = "/"): Promise<RouteNetwork[]> {
  const files = [
    { file: "proc/net/route", parse: ipv4 },
    { file: "proc/net/ipv6_route", parse: ipv6 },
  ];
  const routes = await Promise.all(
    files.map(async ({ file, parse }) => (await linesOf(join(root, file))).flatMap(parse)),
  );
  return routes.flat().flatMap(({ network, prefixLength, interfaceName, flags }) => {
    // Bit operations would make RTF_LOCAL negative.
    const isOwn = (flags & (RTF_REJECT | RTF_ANYCAST)) !== 0 || flags >= RTF_LOCAL || interfaceName === "lo";
    if (isOwn || prefixLength === 0) return [];
    const prefix = parseCIDR(`${formatAddress(network)}/${prefixLength}`);
    return prefix === undefined ? [] : [{ prefix, interfaceName }];
  });
}

/** Complete lines from the beginning of a file; none if it cannot be read. */
async function linesOf(path: string): Promise<string[]> {
  const chunks: Buffer[] = [];
  try {
    await using file = await open(path);
    for (let size = 0; size < MOST_BYTES;) {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(1 << 16));
      if (bytesRead === 0) break;
      chunks.push(buffer.subarray(0, bytesRead));
      size += bytesRead;
    }
  } catch {
    return [];
  }
  const text = Buffer.concat(chunks).toString("latin1");
  return text.slice(0, text.lastIndexOf("\n") + 1).split("\n");
}

/** net/ipv4/fib_trie.c, fib_route_seq_show: addresses in host byte order. */
function ipv4(line: string): Route[] {
  const [interfaceName, destination, , flags, , , , mask] = line.split(/\s+/);
  if (mask === undefined || !/^[0-9A-F]{8}$/.test(mask)) return [];
  const bytes = (hex: string): Uint8Array => {
    const read = Buffer.from(hex, "hex");
    return LITTLE_ENDIAN ? read.toReversed() : read;
  };
  const prefixLength = bytes(mask).reduce((sum, byte) => sum + byte.toString(2).replaceAll("0", "").length, 0);
  return up({ network: bytes(destination), prefixLength, interfaceName, flags: Number.parseInt(flags, 16) });
}

/** net/ipv6/route.c, rt6_info_route. */
function ipv6(line: string): Route[] {
  const [destination, length, , , , , , , flags, interfaceName] = line.trim().split(/\s+/);
  if (interfaceName === undefined) return [];
  const network = Buffer.from(destination, "hex");
  return up({ network, prefixLength: Number.parseInt(length, 16), interfaceName, flags: Number.parseInt(flags, 16) });
}

function up(route: Route): Route[] {
  return (route.flags & RTF_UP) === 0 ? [] : [route];
}

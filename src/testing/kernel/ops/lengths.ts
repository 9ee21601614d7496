import { FibResult } from "../../../netlink/constants.js";
import { Refusal } from "../state.js";
import type { Family } from "../../../netlink/kernel.js";

/** IFNAMSIZ */
const NAME = 16;

/** Number of bytes by key; keys that are not listed have 4 bytes. */
const META: ReadonlyMap<number, number> = new Map([
  // protocol, iiftype, oiftype
  [1, 2],
  [8, 2],
  [9, 2],
  // iifname, oifname, bri_iifname, bri_oifname
  [6, NAME],
  [7, NAME],
  [17, NAME],
  [18, NAME],
  // nftrace, nfproto, l4proto, pkttype
  [12, 1],
  [15, 1],
  [16, 1],
  [19, 1],
  // time_ns, time_day
  [27, 8],
  [28, 1],
]);
/** NFT_META_MAX, rounded up. */
const META_KEYS = 40;

/** Bytes that `meta` moves for a key (nft_meta_get_init). */
export function metaLength(key: number): number {
  if (key > META_KEYS) throw new Refusal("EOPNOTSUPP");
  return META.get(key) ?? 4;
}

const CT: ReadonlyMap<number, number> = new Map([
  // direction, l3protocol, protocol
  [1, 1],
  [7, 1],
  [10, 1],
  // helper
  [6, 16],
  // proto-src, proto-dst
  [11, 2],
  [12, 2],
  // labels
  [13, 16],
  // packets, bytes, average
  [14, 8],
  [15, 8],
  [16, 8],
  // zone
  [17, 2],
  // src-ip6, dst-ip6
  [21, 16],
  [22, 16],
]);
/** NFT_CT_SRC, NFT_CT_DST: as long as an address of the family. */
const CT_ADDRESSES = [8, 9];
/** NFT_CT_ID */
const CT_KEYS = 24;

/** Bytes that `ct` moves for a key (nft_ct_get_init). */
export function ctLength(key: number, family: Family): number {
  if (key > CT_KEYS) throw new Refusal("EOPNOTSUPP");
  if (CT_ADDRESSES.includes(key)) return family === "ip" ? 4 : 16;
  return CT.get(key) ?? 4;
}

/** Size of a fib result, or 0 if it is unknown. */
export function fibLength(result: number): number {
  if (result === FibResult.oifname) return NAME;
  return result === FibResult.oif || result === FibResult.addrtype ? 4 : 0;
}

/** classid, nexthop4, nexthop6, tcpmss, xfrm */
const RT = [4, 4, 16, 2, 1];

/** Size of the value that an rt expression loads. Throws if the key is unknown. */
export function rtLength(key: number): number {
  if (key >= RT.length) throw new Refusal("EOPNOTSUPP");
  return RT[key];
}

/** transparent, mark, wildcard, cgroupv2 */
const SOCKET = [1, 4, 1, 8];

/** Size of the value that a socket expression loads. Throws if the key is unknown. */
export function socketLength(key: number): number {
  if (key >= SOCKET.length) throw new Refusal("EOPNOTSUPP");
  return SOCKET[key];
}

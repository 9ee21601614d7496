import { CtDirection, CtKey, FibResult, MetaKey } from "../../kernel/constants.js";
import { Refusal } from "../state/state.js";
import type { Family } from "../../kernel/kernel.js";

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
  // nftrace, nfproto, l4proto, pkttype, secpath
  [12, 1],
  [15, 1],
  [16, 1],
  [19, 1],
  [25, 1],
  // iifkind, oifkind, sdifname
  [26, NAME],
  [27, NAME],
  [34, NAME],
  // time_ns, time_day
  [30, 8],
  [31, 1],
]);
const META_KEYS: readonly number[] = Object.values(MetaKey);
/** Keys of bridges, and nftrace. */
const META_UNREADABLE: readonly number[] = [17, 18, 28, 29, 35, 37, MetaKey.nftrace];
/** nft_meta_set_init */
const META_WRITABLE: readonly number[] = [
  MetaKey.priority,
  MetaKey.mark,
  MetaKey.nftrace,
  MetaKey.secmark,
  MetaKey.pkttype,
];

/** Bytes that `meta` moves for a key (nft_meta_get_init). */
export function metaLength(key: number, isWritten: boolean): number {
  const isKnown = isWritten ? META_WRITABLE.includes(key) : META_KEYS.includes(key) && !META_UNREADABLE.includes(key);
  if (!isKnown) throw new Refusal("EOPNOTSUPP");
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
/** Keys of a direction, which they need. */
const CT_DIRECTED = [...CT_ADDRESSES, 11, 12, 19, 20, 21, 22];
/** l3protocol, protocol, packets, bytes, avgpkt, zone: may name a direction. */
const CT_MAY_DIRECT = [7, 10, 14, 15, 16, 17];
/** nft_ct_set_init */
const CT_WRITABLE: readonly number[] = [CtKey.mark, CtKey.secmark, CtKey.labels, CtKey.zone, CtKey.eventmask];

/** Bytes that `ct` moves for a key (nft_ct_get_init). */
export function ctLength(key: number, family: Family, isWritten: boolean, direction?: number): number {
  const isKnown = isWritten ? CT_WRITABLE.includes(key) : key <= CtKey.id && key !== CtKey.eventmask;
  if (!isKnown) throw new Refusal("EOPNOTSUPP");
  const isDirected = CT_DIRECTED.includes(key);
  const fits = direction === undefined ? !isDirected : isDirected || CT_MAY_DIRECT.includes(key);
  if (!fits || (direction ?? 0) > CtDirection.reply) throw new Refusal("EINVAL");
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

/** daddr-ip4, daddr-ip6, saddr-ip4, saddr-ip6, reqid, spi */
const XFRM = [4, 16, 4, 16, 4, 4];

/** Size of the value that an xfrm expression loads. Throws if the key is unknown. */
export function xfrmLength(key: number): number {
  if (key < 1 || key > XFRM.length) throw new Refusal("EINVAL");
  return XFRM[key - 1];
}

/** transparent, mark, wildcard, cgroupv2 */
const SOCKET = [1, 4, 1, 8];

/** Size of the value that a socket expression loads. Throws if the key is unknown. */
export function socketLength(key: number): number {
  if (key >= SOCKET.length) throw new Refusal("EOPNOTSUPP");
  return SOCKET[key];
}

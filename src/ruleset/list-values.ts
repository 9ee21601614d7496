/**
 * What the maps of services say of a VIP or node port: which list it draws from, how many endpoints that has, and which map holds them.
 * One 32-bit number, which packets carry as their priority from the look-up of the service to the look-up in `dispatch`, and which nft prints
 * as a classid, two numbers in hex: `15:3` is kind 1, shard 5, 3 endpoints.
 */
import type { Balance } from "../objects/balance.js";

/**
 * Which list a draw chain draws from, for whom:
 * `cluster` and `masq` (marks for masquerading first) draw one of N from the cluster list, `local` from the local list.
 */
export type DrawKind = "cluster" | "masq" | "local";

/** Endpoint maps of VIPs: one large map would take the kernel a walk from its start for every 32 KiB of a dump. */
export const SHARDS = 16;

export interface ListValue {
  readonly kind: DrawKind | "sticky";
  /** Below 2 ** 23; of slots below 2 ** 16. */
  readonly count: number;
  /** Below SHARDS; 0 for a node port. */
  readonly shard: number;
  readonly nodePort: boolean;
  /** What decides which of so many slots (slots.ts) is drawn; absent: they are endpoints, drawn by chance. */
  readonly slots?: Balance["by"];
}

const KINDS = ["sticky", "cluster", "masq", "local"] as const;
/** No VIP has a list of kind 0: it is what the chains of service ports with ClientIP affinity draw from. */
const KIND_NUMBER: Readonly<Record<ListValue["kind"], number>> = { sticky: 0, cluster: 1, masq: 2, local: 3 };
const BY_SOURCE = 4;
/**
 * Set in the value that the map `services` has for a ClusterIP, and in no other value there or in `nodeports`: other addresses have a list that marks, or go
 * by source.
 */
export const OF_CLUSTER_IP = 1 << 20;
/** Added to a list's kind: the service port has ClientIP affinity. */
const STICKY = 4;
const NODE_PORT = 8;
/** The first 8 bits of a list of slots: `8015:400` draws from 1,024 of them. No list has as many endpoints. */
const SLOT_DRAWS: readonly (Balance["by"] | undefined)[] = ["source-ip", "source-ip-port", "chance"];
const FIRST_SLOT_DRAW = 0x80;

function pack(kind: number, nodePort: boolean, shard: number, count: number): number {
  const number = nodePort ? kind + NODE_PORT : kind;
  return (((count >>> 16) << 24) | (number << 20) | (shard << 16) | (count & 0xffff)) >>> 0;
}

export function packList({ kind, count, shard, nodePort, slots }: ListValue): number {
  const draw = slots === undefined ? 0 : (FIRST_SLOT_DRAW + SLOT_DRAWS.indexOf(slots)) << 16;
  return pack(KIND_NUMBER[kind], nodePort, shard, draw + count);
}

/** Of a number that packList gave. */
export function unpackList(value: number): ListValue {
  const kind = (value >>> 20) & 0xf;
  const slots = SLOT_DRAWS[(value >>> 24) - FIRST_SLOT_DRAW];
  return {
    kind: KINDS[kind & ~NODE_PORT],
    count: (slots === undefined ? (value >>> 24) << 16 : 0) | (value & 0xffff),
    shard: (value >>> 16) & 0xf,
    nodePort: (kind & NODE_PORT) !== 0,
    slots,
  };
}

/** Bits of a list's kind and shard. */
const LIST_BITS = 0x00ff0000;

/** The same list with another number of endpoints, below 2 ** 16. Of a number that packList gave, not of slots. */
export function withCount(value: number, count: number): number {
  return (value & LIST_BITS) | count;
}

/** How many places the list has; those of slots, and of lists with 2 ** 16 endpoints and more, have high bits as well. */
export function countOf(value: number): number {
  return (value & ~LIST_BITS) >>> 0;
}

/** Policy Local from outside: where a packet comes from decides which list it draws from. */
export function bySource(nodePort: boolean): number {
  return pack(BY_SOURCE, nodePort, 0, 0);
}

export function isBySource(value: number): boolean {
  return value === bySource(false) || value === bySource(true);
}

/** Service ports with ClientIP affinity are told apart by a number below this: their lists are none of ENDPOINT_NUMBERS then. */
export const STICKY_NUMBERS = 2 ** 26;

/** A list of the service port with ClientIP affinity that has this number. */
export function stickyList(kind: DrawKind, number: number): number {
  return (((number >>> 20) << 24) | ((KIND_NUMBER[kind] + STICKY) << 20) | (number & 0xfffff)) >>> 0;
}

export function isSticky(value: number): boolean {
  const kind = (value >>> 20) & 0xf;
  return kind > STICKY && kind < NODE_PORT;
}

/** Endpoints' numbers (sticky-numbers.ts) are these bits, and others behind them: `6b00:0` and up, as nft prints them. */
export const ENDPOINT_NUMBERS = { mask: 0xff000000, value: 0x6b000000, count: 2 ** 24 } as const;

/** The shard of a VIP's endpoints: a hash of its packed address, protocol and port. */
export function shardOf(key: Uint8Array): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key[i], 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 15), 0x85ebca6b);
  return (hash ^ (hash >>> 13)) >>> 28;
}

/**
 * The data that the maps of services have for a VIP or node port: the list to draw from, its number of endpoints, and the map
 * that contains them. It is a 32-bit number. Packets carry it as their priority from the lookup of the service to the lookup in
 * `dispatch`. nft prints it as a classid, two numbers in hex: `15:3` is kind 1, shard 5, 3 endpoints.
 */
import type { Balance } from "../objects/balance.js";

/**
 * The list that a draw chain uses: `cluster` and `masq` (which first marks for masquerading) draw one of N from the cluster
 * list, `local` from the local list.
 */
export type DrawKind = "cluster" | "masq" | "local";

/**
 * Number of endpoint maps for VIPs. After every 32 KiB of a dump, the kernel walks the map from its start again, which would take long
 * for one large map.
 */
export const SHARDS = 16;

export interface ListValue {
  readonly kind: DrawKind | "affinity";
  /** Below 2 ** 23; for slots below 2 ** 16. */
  readonly count: number;
  /** Below SHARDS; 0 for a node port. */
  readonly shard: number;
  readonly nodePort: boolean;
  /** How one of `count` slots (slots.ts) is drawn. If absent, `count` is of endpoints, and chance decides. */
  readonly slots?: Balance["by"];
}

const KINDS = ["affinity", "cluster", "masq", "local"] as const;
/** No VIP has a list of kind 0: the chains of service ports with ClientIP affinity draw from it. */
const KIND_NUMBER: Readonly<Record<ListValue["kind"], number>> = { affinity: 0, cluster: 1, masq: 2, local: 3 };
const BY_SOURCE = 4;
/**
 * Set in the value that the map `services` has for a ClusterIP, and in no other value of `services` or `nodeports`. Other
 * addresses have a list that marks, or decide by source.
 */
export const OF_CLUSTER_IP = 1 << 20;
/** Added to a list's kind if the service port has ClientIP affinity. */
const AFFINITY = 4;
const NODE_PORT = 8;
/** The first 8 bits of a list of slots: `8015:400` draws from 1,024 slots. No list has as many endpoints. */
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

/** @param value a result of packList. */
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

/** The same list with another number of endpoints, below 2 ** 16. @param value a result of packList, without slots. */
export function withCount(value: number, count: number): number {
  return (value & LIST_BITS) | count;
}

/** Number of places in the list. Lists of slots, and lists with 2 ** 16 or more endpoints, also use high bits. */
export function countOf(value: number): number {
  return (value & ~LIST_BITS) >>> 0;
}

/** The value for policy Local from outside: the packet's source decides which list it draws from. */
export function bySource(nodePort: boolean): number {
  return pack(BY_SOURCE, nodePort, 0, 0);
}

export function isBySource(value: number): boolean {
  return value === bySource(false) || value === bySource(true);
}

/** Each service port with ClientIP affinity has a number below this limit. It keeps their lists apart from ENDPOINT_NUMBERS. */
export const AFFINITY_NUMBERS = 2 ** 26;

/** List value for a list of the service port with this affinity number. */
export function affinityList(kind: DrawKind, number: number): number {
  return (((number >>> 20) << 24) | ((KIND_NUMBER[kind] + AFFINITY) << 20) | (number & 0xfffff)) >>> 0;
}

export function hasAffinity(value: number): boolean {
  const kind = (value >>> 20) & 0xf;
  return kind > AFFINITY && kind < NODE_PORT;
}

/** Endpoints' numbers (affinity-numbers.ts) consist of these bits, followed by others: `6b00:0` and up, as nft prints them. */
export const ENDPOINT_NUMBERS = { mask: 0xff000000, value: 0x6b000000, count: 2 ** 24 } as const;

/** The shard of a VIP's endpoints: a hash of its packed address, protocol and port. */
export function shardOf(key: Uint8Array): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key[i], 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 15), 0x85ebca6b);
  return (hash ^ (hash >>> 13)) >>> 28;
}

/** The places at which packets meet chains. */
import { Hook, HOOK_NAMES } from "../../../nft/kernel/constants.js";
import type { BaseChain, Family, TableRef } from "../../../nft/kernel/kernel.js";

/** Places at which packets meet chains: the hooks of IP, those of a device, and those of a bridge. */
export const Point = { ...Hook, egress: 6 } as const;
const POINT_NAMES = [...HOOK_NAMES, "egress"];
const BRIDGE = POINT_NAMES.length;

/** The point of a bridge's hook, whose numbers are those of IP's hooks. */
export function bridgePoint(hook: number): number {
  return BRIDGE + hook;
}

/** The kernel numbers the hooks of each family from 0, but inet has ingress after those of IP (NF_INET_INGRESS). */
export function pointOf(family: Family, hook: number): number {
  if (family === "netdev") return Point.ingress + hook;
  return family === "bridge" ? bridgePoint(hook) : hook;
}

/** "forward". */
export function pointName(point: number): string {
  return POINT_NAMES[point < BRIDGE ? point : point - BRIDGE] ?? String(point);
}

/** The rule or policy that decided over a packet. */
export interface EndedBy {
  /** "forward". */
  readonly hook: string;
  readonly ref: TableRef;
  /** The rule's chain. For a policy, the base chain. */
  readonly chain: string;
  /** "tcp dport 80 drop (handle 3)". Absent if the chain's policy decided. */
  readonly rule?: string;
}

/** "inet a f: tcp dport 80 drop (handle 3)". */
export function endText({ ref, chain, rule }: EndedBy): string {
  return rule === undefined
    ? `the policy of ${ref.family} ${ref.table} ${chain}`
    : `${ref.family} ${ref.table} ${chain}: ${rule}`;
}

export interface HookedChain {
  readonly ref: TableRef;
  readonly chain: string;
  readonly base: BaseChain;
  readonly point: number;
}

export type IsMet = (chain: HookedChain) => boolean;

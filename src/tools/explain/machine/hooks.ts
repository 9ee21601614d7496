/** The places at which packets meet chains, and the steps there in the order in which packets pass them. */
import { Hook, HOOK_NAMES, Priority } from "../../../netlink/constants.js";
import type { BaseChain, Family, TableRef } from "../../../netlink/kernel.js";

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

/** A step at a hook: a chain, or the kernel's connection tracker or NAT, which runs all chains of type nat. */
export type Unit =
  | { readonly kind: "chain"; readonly chain: HookedChain }
  | { readonly kind: "tracker" }
  | { readonly kind: "nat"; readonly groups: Groups };

/**
 * Steps of the same priority form one group, because they run in the reverse order of their registration, which the
 * kernel does not report. Chains of one table have that order.
 */
export type Groups = readonly (readonly Unit[])[];

/** NF_IP_PRI_CONNTRACK */
const CONNTRACK = -200;

/**
 * Priority of the kernel's NAT at each hook that has it (nf_nat_register_fn). The priority of a NAT chain orders only
 * NAT chains.
 */
const NAT: Readonly<Partial<Record<number, number>>> = {
  [Hook.prerouting]: Priority.dstnat,
  [Hook.output]: Priority.dstnat,
  [Hook.input]: Priority.srcnat,
  [Hook.postrouting]: Priority.srcnat,
};

/** Returns the steps at a point in their order. */
export function groupsAt(point: number, hooked: readonly HookedChain[], isMet: IsMet): Groups {
  const here = hooked.filter((chain) => chain.point === point && isMet(chain)).toReversed();
  const [nats, others] = [true, false].map((isNat) =>
    here
      .filter(({ base }) => (base.type === "nat") === isNat)
      .map((chain): [number, Unit] => [chain.base.priority, { kind: "chain", chain }]),
  );
  if (point === Hook.prerouting || point === Hook.output) others.push([CONNTRACK, { kind: "tracker" }]);
  const nat = NAT[point];
  if (nat !== undefined) others.push([nat, { kind: "nat", groups: groupsOf(nats) }]);
  return groupsOf(others);
}

function groupsOf(units: readonly (readonly [priority: number, unit: Unit])[]): Unit[][] {
  const sorted = units.toSorted(([a], [b]) => a - b);
  const groups = Map.groupBy(sorted, ([priority]) => priority);
  return Array.from(groups.values(), (group) => group.map(([, unit]) => unit));
}

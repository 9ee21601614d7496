/** The differences between families of tables: hooks, priorities, and statements that never match. */
import { ArpHook, BridgePriority, Hook, NetdevHook, Priority } from "../kernel/constants.js";
import type { BaseChain, Family } from "../kernel/kernel.js";
import type { Field, Statement } from "./rule.js";

const { ingress: _, ...OTHER_HOOKS } = Hook;

export type HookName = keyof typeof Hook | keyof typeof NetdevHook;
export type PriorityName = keyof typeof Priority | keyof typeof BridgePriority;

type Numbers<Name extends string> = Readonly<Partial<Record<Name, number>>>;

export function hooksOf(family: Family): Numbers<HookName> {
  if (family === "inet") return Hook;
  return family === "arp" ? ArpHook : family === "netdev" ? NetdevHook : OTHER_HOOKS;
}

/** Whether the hook belongs to devices, which a chain must name. */
export function isOfDevices(family: Family, hook: number): boolean {
  return family === "netdev" || (family === "inet" && hook === Hook.ingress);
}

export function prioritiesOf(family: Family): Numbers<PriorityName> {
  if (family === "bridge") return BridgePriority;
  return family === "arp" || family === "netdev" ? { filter: Priority.filter } : Priority;
}

type Kind = Extract<Statement, { action: string }>["action"];

const CONNECTIONS: readonly Kind[] = ["connections", "connections-over"];
/** Only the IP families rewrite connections, or pass packets to other sockets and around hooks. */
const NAT: readonly Kind[] = ["dnat", "snat", "masquerade", "redirect", "tproxy", "synproxy", "flow"];
const CONNECTION_FIELDS: readonly string[] = ["ct-saddr", "ct-daddr"];
const INTERNET_FIELDS: readonly string[] = ["saddr", "daddr"];

/** Actions and short names of fields that never match, or that the kernel refuses: ARP has no IP header, and devices track no connections. */
const NEVER: Partial<Record<Family, { readonly kinds: ReadonlySet<Kind>; readonly fields: ReadonlySet<string> }>> = {
  arp: {
    kinds: new Set([...CONNECTIONS, ...NAT, "reject", "queue", "fwd"]),
    fields: new Set([...CONNECTION_FIELDS, ...INTERNET_FIELDS]),
  },
  ip: { kinds: new Set(["fwd"]), fields: new Set() },
  ip6: { kinds: new Set(["fwd"]), fields: new Set() },
  inet: { kinds: new Set(["fwd"]), fields: new Set() },
  bridge: { kinds: new Set([...NAT, "fwd"]), fields: new Set() },
  netdev: { kinds: new Set([...CONNECTIONS, ...NAT, "queue"]), fields: new Set(CONNECTION_FIELDS) },
};

/** The part of a statement that no packet in a table of the family matches: "dnat", "field saddr". Undefined if all may. */
export function neverMatches(family: Family, statement: Statement): string | undefined {
  const never = NEVER[family];
  if (never === undefined) return undefined;
  if ("action" in statement && never.kinds.has(statement.action)) return statement.action;
  const read = "action" in statement ? ("key" in statement ? (statement.key ?? []) : []) : [statement.field].flat();
  const names = read.flatMap((field: Field): readonly string[] =>
    typeof field === "string" ? [field] : field.field === "jhash" ? field.of : [],
  );
  const field = names.find((one) => never.fields.has(one));
  return field === undefined ? undefined : `field ${field}`;
}

/** Describes the hook for comparisons and messages: by its name in the IP families, but on devices, which have other hooks, by its number. */
export function describeHook(base: BaseChain | undefined): string {
  if (base === undefined) return "no hook";
  const { type, hook, priority, devices = [] } = base;
  const name = Object.entries(Hook).find(([, number]) => number === hook)?.[0] ?? hook;
  const where = devices.length === 0 ? name : `${hook} devices ${devices.toSorted().join(" ")}`;
  return `type ${type} hook ${where} priority ${priority}`;
}

export function policyOf(base: BaseChain | undefined): string {
  return base?.policy ?? "accept";
}

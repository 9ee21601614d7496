/** The statements that never match in a table of a family. */
import type { Family } from "../kernel/kernel.js";
import type { Field, Statement } from "./rule.js";

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

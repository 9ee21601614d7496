/** Actions that rewrite a connection's addresses and ports. */
import { either, type Fields, flag, oneOf, optional, record, type RecordOf, type ValueOf } from "../../base/shape.js";
import { protocolNumber } from "../../base/protocols.js";
import { numberToBytes, parseRange } from "../bytes/ip-ranges.js";
import { NatFlag, NatType, register } from "../kernel/constants.js";
import type { Expr } from "../kernel/kernel.js";
import { FieldError, within } from "../language/fields/field-error.js";
import { dataFields } from "../language/schema.js";
import { addressRange, anything, isFromMap, key, mapOf, orMap, port, rangeShape } from "../language/vocabulary.js";
import { checkVersion, knownVersion, NFPROTO, versionOf } from "../lowering/dependencies.js";
import { lookUpOrMake } from "../lowering/inline-sets.js";
import { versionOfType } from "../lowering/keys.js";
import { immediate, type LowerContext, lowered, type Lowered, portBytes } from "../lowering/lowered.js";
import { INTERNET, kind } from "./kind.js";

/** A port or an inclusive range of ports. */
export const portRange = either("a port from 0 to 65535, or { from, to }", port, rangeShape("{ from, to }", port));
const portMap = record({ key, map: mapOf("port", anything) }, "an object with key and map");
const portSource = orMap("a port, { from, to }, or { key, map }", portRange, portMap);
const ADDRESS_MAP = {
  key,
  map: mapOf("address", anything),
  data: optional(oneOf("address", "address-port")),
} as const satisfies Fields;
const addressSource = either(
  'an address, a network, a range ("FROM-TO"), or { key, map }',
  addressRange,
  record(ADDRESS_MAP, "an object with key and map"),
);
const OPTIONS = { random: optional(flag), fullyRandom: optional(flag), persistent: optional(flag) } as const;
const TARGET = { address: optional(addressSource), port: optional(portSource), ...OPTIONS } as const;
const OWN_PORTS = { ports: optional(portSource), ...OPTIONS } as const;

export type PortRange = ValueOf<typeof portRange>;
export type PortSource = ValueOf<typeof portSource>;
export type AddressSource = ValueOf<typeof addressSource>;

function natFlags({ random, fullyRandom, persistent }: RecordOf<typeof OPTIONS>): number {
  return (
    (random === true ? NatFlag.protoRandom : 0) |
    (fullyRandom === true ? NatFlag.protoRandomFully : 0) |
    (persistent === true ? NatFlag.persistent : 0)
  );
}

const withFlags = (flags: number): { readonly flags?: number } => (flags === 0 ? {} : { flags });

const WITH_PORTS: ReadonlySet<number> = new Set(
  ["tcp", "udp", "udplite", "sctp", "dccp"].map((name) => protocolNumber(name)),
);

interface LoadedPorts {
  readonly exprs: readonly Expr[];
  readonly registers: { readonly regProtoMin: number; readonly regProtoMax?: number };
}

/** Loads ports into registers of 16 bytes, from `first` on. Ports of a map need the first one. */
function portsAt(ports: PortSource, first: number, context: LowerContext): LoadedPorts {
  const { l4proto, hasTransport } = context.facts;
  if (l4proto !== undefined && !WITH_PORTS.has(l4proto))
    throw new FieldError("", `no port, because packets of protocol ${l4proto} have none`, ports);
  if (!hasTransport)
    throw new FieldError(
      "",
      'a match of the protocol before it, such as { field: "meta l4proto", value: "tcp" }',
      ports,
    );
  if (isFromMap(ports)) {
    if (first !== 1) throw new FieldError("", "no map beside an address: use a map of address and port", ports);
    return { ...lookUpOrMake(context, ports, ["inet_service"]), registers: { regProtoMin: 1 } };
  }
  const { from, to } = typeof ports === "number" ? { from: ports, to: ports } : ports;
  if (from === to) return { exprs: [immediate(portBytes(from), first)], registers: { regProtoMin: first } };
  const registers = { regProtoMin: first, regProtoMax: first + 1 };
  return { exprs: [immediate(portBytes(from), first), immediate(portBytes(to), first + 1)], registers };
}

/** The address or its range, then the port or its range. */
function natTo(how: "dnat" | "snat", target: RecordOf<typeof TARGET>, context: LowerContext): Lowered {
  const { address, port: ports } = target;
  if (address === undefined && ports === undefined) throw new FieldError("", "an address or a port", how);
  if (isFromMap(address)) return within("address", () => natThrough(how, target, address, context));
  const range = address === undefined ? undefined : parseRange(address);
  const version = range?.version ?? knownVersion(context) ?? context.assumed;
  if (version === undefined)
    throw new FieldError("address", "an address, or a match of the IP version before the action", address);
  within("address", () => checkVersion(context, version, address));
  const ends = range === undefined ? [] : range.from === range.to ? [range.from] : [range.from, range.to];
  const isPrefix = ends.length === 2 && address?.includes("/") === true;
  const loaded = ports === undefined ? undefined : within("port", () => portsAt(ports, ends.length + 1, context));
  const flags =
    natFlags(target) | (loaded === undefined ? 0 : NatFlag.protoSpecified) | (isPrefix ? NatFlag.netmap : 0);
  return lowered(
    ...ends.map((end, index) => immediate(numberToBytes(end, version === 4 ? 4 : 16), index + 1)),
    ...(loaded?.exprs ?? []),
    {
      type: "nat",
      natType: NatType[how],
      family: NFPROTO[version],
      ...(ends.length > 0 ? { regAddrMin: 1 } : {}),
      ...(ends.length > 1 ? { regAddrMax: 2 } : {}),
      ...loaded?.registers,
      ...withFlags(flags),
    },
  );
}

/** The result of the look-up replaces its key: the address is at word 0, the port at the first word after it. */
function natThrough(
  how: "dnat" | "snat",
  { port: ports, ...options }: RecordOf<typeof TARGET>,
  source: RecordOf<typeof ADDRESS_MAP>,
  context: LowerContext,
): Lowered {
  const { map, data = "address" } = source;
  if (ports !== undefined) throw new FieldError("", "no map beside a port: use a map of address and port", source);
  const type = typeof map === "string" ? dataFields({ data: context.setSpec?.(map)?.data })[0] : undefined;
  const given = typeof map === "string" ? undefined : String([map[0]?.[1]].flat()[0]).includes(":") ? 6 : 4;
  const version = versionOf(context.family) ?? versionOfType(type) ?? given ?? knownVersion(context) ?? context.assumed;
  if (version === undefined)
    throw new FieldError(
      "map",
      `a map that was declared before, because a table of family ${context.family} needs its types`,
      map,
    );
  within("map", () => checkVersion(context, version, map));
  const address = version === 4 ? "ipv4_addr" : "ipv6_addr";
  const { exprs } = lookUpOrMake(context, source, data === "address" ? [address] : [address, "inet_service"]);
  return lowered(...exprs, {
    type: "nat",
    natType: NatType[how],
    family: NFPROTO[version],
    regAddrMin: 1,
    ...withFlags(natFlags(options)),
    ...(data === "address" ? {} : { regProtoMin: register(version === 4 ? 1 : 4) }),
  });
}

/** Own ports: a masquerade or a redirect. */
function ownPorts(
  type: "masq" | "redir",
  { ports, ...options }: RecordOf<typeof OWN_PORTS>,
  context: LowerContext,
): Lowered {
  const flags = natFlags(options);
  if (ports === undefined) return lowered({ type, ...withFlags(flags) });
  const { exprs, registers } = within("ports", () => portsAt(ports, 1, context));
  return lowered(...exprs, { type, ...registers, flags: flags | NatFlag.protoSpecified });
}

const AT_DESTINATION = ["nat", "prerouting", "output"] as const;

export const NAT = {
  /** Rewrites the destination of the connection. A network as address: each address gets the one at its place. */
  dnat: kind(TARGET, (action, context) => natTo("dnat", action, context), INTERNET, AT_DESTINATION),
  /** Rewrites the source of the connection. */
  snat: kind(TARGET, (action, context) => natTo("snat", action, context), INTERNET, ["nat", "postrouting", "input"]),
  /** Rewrites the source of the connection to the address of the outgoing interface. */
  masquerade: kind(OWN_PORTS, (action, context) => ownPorts("masq", action, context), INTERNET, ["nat", "postrouting"]),
  /** Rewrites the destination of the connection to this machine. */
  redirect: kind(OWN_PORTS, (action, context) => ownPorts("redir", action, context), INTERNET, AT_DESTINATION),
};

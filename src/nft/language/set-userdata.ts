/**
 * The user data of sets. nft (1.0.6) keeps in it what the kernel does not: comments, byte orders, and the expressions whose types a key has (`typeof`). Without
 * them, nft lists numbers and names of interfaces wrongly, and aborts at concatenations with an `integer`. The layout is that of nft's `build_udata` functions.
 */
import { PayloadBase } from "../kernel/constants.js";
import { FieldError } from "./fields/field-error.js";
import { FIELD_TYPES, type ValueType, type Width } from "./fields/field-types.js";
import { commentData } from "../bytes/names-and-comments.js";
import { type FieldEntry, FIELDS, load, type Loaded, protocolOfField, widthOfField } from "./fields/packet-fields.js";
import type { TypedField } from "./fields/values.js";

/** A field of a key, as a rule loads it. */
export interface KeyField {
  readonly type: ValueType;
  readonly width: Width;
  /** Bytes that the kernel loads, and the place of the value in them. */
  readonly loaded: Omit<Loaded, "expr">;
  /** A mask of the value. */
  readonly bits?: bigint;
  /** Its expression in user data, or another of the same type. */
  readonly typeof: readonly number[];
}

/** NFTNL_UDATA_SET_*. */
// prettier-ignore
const SET = { keyByteOrder: 0, dataByteOrder: 1, mergeElements: 2, keyTypeof: 3, dataTypeof: 4, dataInterval: 6 };

const u32 = (type: number, value: number): number[] => [type, 4, ...new Uint8Array(Uint32Array.of(value).buffer)];
const nest = (type: number, bytes: readonly number[]): number[] => [type, bytes.length, ...bytes];

/** One of nft's enum expr_types, with its attributes. An attribute's type is its place. */
export function expression(kind: number, ...attributes: readonly (number | undefined)[]): readonly number[] {
  return wrapped(
    kind,
    attributes.flatMap((value, type) => (value === undefined ? [] : u32(type, value))),
  );
}
const wrapped = (kind: number, data: readonly number[]): readonly number[] => [...u32(0, kind), ...nest(1, data)];

/** nft's numbers of headers and their fields, from 1: enum proto_desc_id, and the places in its templates. "-": not in FIELDS. */
// prettier-ignore
const HEADERS: Readonly<Record<string, string>> = {
  ah: "- hdrlength - spi sequence", esp: "spi sequence", comp: "- - cpi", icmp: "type code checksum id sequence gateway mtu",
  igmp: "type checksum mrt group", udp: "sport dport length checksum", udplite: "sport dport csumcov checksum",
  tcp: "sport dport sequence ackseq doff reserved flags window checksum urgptr", dccp: "sport dport type", sctp: "sport dport vtag checksum",
  th: "sport dport", ip: "version hdrlength dscp ecn length id frag-off ttl protocol checksum saddr daddr",
  ip6: "version dscp ecn flowlabel length nexthdr hoplimit saddr daddr",
  icmpv6: "type code checksum param-problem mtu id sequence max-delay",
  arp: "htype ptype hlen plen operation saddr-ether saddr-ip daddr-ether daddr-ip", vlan: "pcp dei - id type", ether: "daddr saddr type",
};
/** The same for IPv6's extension headers (enum exthdr_desc_id). */
// prettier-ignore
const EXTENSIONS: Readonly<Record<string, string>> = {
  hbh: "nexthdr hdrlength", rt: "nexthdr hdrlength type seg-left", rt0: "", rt2: "", srh: "",
  frag: "nexthdr - frag-off - more-fragments id", dst: "nexthdr hdrlength", mh: "nexthdr hdrlength - - checksum",
};

function placeIn(headers: Readonly<Record<string, string>>, name: string): readonly [header: number, field: number] {
  const protocol = protocolOfField(name);
  const field = name.slice(protocol.length + 1).replace(" ", "-");
  return [Object.keys(headers).indexOf(protocol) + 1, headers[protocol]?.split(" ").indexOf(field) + 1 || 0];
}

export function keyFieldOf(name: string, entry: FieldEntry): KeyField {
  return { type: entry.type, width: widthOfField(entry), loaded: load(entry, 1), typeof: typeofField(name, entry) };
}

function typeofField(name: string, entry: FieldEntry): readonly number[] {
  const { type, bits, source } = entry;
  if (isUntyped(name, entry)) return exampleOf({ type, width: widthOfField(entry) }).typeof;
  switch (source.from) {
    case "payload": {
      const [header, field] = placeIn(HEADERS, name);
      const raw = header === 0 ? [PayloadBase[source.base] + 1, source.offset] : [undefined, undefined];
      return expression(7, header, field, ...raw, type === "integer" ? bits : undefined);
    }
    case "exthdr": {
      const [header, field] = placeIn(EXTENSIONS, name);
      if (source.op === 0) return wrapped(8, [...u32(1, field), ...u32(0, header)]);
      // An option's first fields are its kind and length. nft has one more for options of IPv4.
      const place = source.op === 2 ? 3 : 2 + Math.floor(source.offset / 32);
      return wrapped(8, [...u32(1, place), ...u32(2, source.op), ...u32(0, source.header)]);
    }
    case "ct":
      return expression(12, source.key, source.direction ?? 0xffffffff);
    case "fib":
      return expression(26, source.result, source.flags);
    case "osf":
      return expression(11);
    default:
      return expression({ meta: 9, socket: 10, rt: 25 }[source.from], source.key);
  }
}

/** nft's enum byteorder. A concatenation and a verdict have none. */
function orderOf(fields: readonly Pick<KeyField, "width">[]): number {
  return fields.length !== 1 ? 0 : fields[0].width.hostOrder ? 1 : 2;
}

function typeofAll(fields: readonly KeyField[]): readonly number[] {
  if (fields.length === 0) return expression(1);
  if (fields.length === 1) return fields[0].typeof;
  return wrapped(
    13,
    fields.flatMap((field, index) => nest(index, field.typeof)),
  );
}

/** Fields of a concatenation whose types nft can read: the number of a type has 6 of 32 bits. It reads fewer expressions. */
export const MAX_TYPES = 5;
const MAX_TYPEOF = 4;

/**
 * The user data of a set that comes with a rule. Throws FieldError if nft could not list the set.
 * @param data the fields of a map's values. Empty for verdicts.
 */
export function anonymousUserdata(
  key: readonly KeyField[],
  isInterval: boolean,
  data?: readonly TypedField[],
): Uint8Array {
  const isLong = key.length > MAX_TYPEOF;
  if (key.length > MAX_TYPES || (isLong && key.some(({ type }) => type === "integer" || type === "index")))
    throw new FieldError(
      "key",
      `at most ${MAX_TYPES} fields, or ${MAX_TYPEOF} if one of them is an integer: nft cannot list others`,
      key.map(({ type }) => type),
    );
  // nft finds no expression under what it generates for some bits of a field, and puts none for the single key of a map.
  const hasTypeof =
    key.length > 1 ? !isLong : !key[0].loaded.isPartial && key[0].bits === undefined && data === undefined;
  // nft itself writes none for values. Then it ignores the expressions of the key, and aborts at a concatenation with an integer.
  const dataTypeof = data !== undefined && (hasTypeof || data.length === 0);
  return Uint8Array.from([
    ...u32(SET.keyByteOrder, orderOf(key)),
    ...(data === undefined ? [] : u32(SET.dataByteOrder, orderOf(data))),
    ...(isInterval && data === undefined ? u32(SET.mergeElements, 1) : []),
    ...(hasTypeof ? nest(SET.keyTypeof, typeofAll(key)) : []),
    ...(dataTypeof ? nest(SET.dataTypeof, typeofAll(data.map(exampleOf))) : []),
    ...(data === undefined ? [] : u32(SET.dataInterval, 0)),
  ]);
}

/** Whether nft does not find the type in the expression: whether a header or an option is there, and the ports of connections. */
function isUntyped(name: string, { source }: FieldEntry): boolean {
  return (source.from === "exthdr" && source.present === true) || / proto-/.test(name);
}

/** A field of this type. */
function exampleOf({ type, width }: TypedField): KeyField {
  const [name, entry] = Object.entries(FIELDS).find(
    ([name, one]) => one.type === type && widthOfField(one).length === width.length && !isUntyped(name, one),
  )!;
  return keyFieldOf(name, entry);
}

/** The user data of a named set. Undefined if nft needs none. */
export function namedUserdata(
  comment: string | undefined,
  ...parts: readonly (readonly ValueType[])[]
): Uint8Array | undefined {
  // nft knows the byte order of each field in a concatenation from its type. It counts names of interfaces among the fields in host order.
  const orders = parts.flatMap((fields, part) =>
    fields.length === 1 && FIELD_TYPES[fields[0]].hostOrder === true ? u32(part, 1) : [],
  );
  const all = Uint8Array.of(...orders, ...(commentData(comment, "set") ?? []));
  return all.length === 0 ? undefined : all;
}

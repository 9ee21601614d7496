/** The fields that a packet carries, as look-up keys (expressions and text), and the parts that all statements share. */
import {
  BitwiseOp,
  CmpOp,
  CtKey,
  LookupFlag,
  MetaKey,
  NfProto,
  NumgenType,
  PayloadBase,
  register,
  VERDICT_REGISTER,
} from "../../netlink/constants.js";
import { registerWord } from "../../netlink/normalize.js";
import type { ElementBatch, Expr, Family, SetInfo } from "../../netlink/kernel.js";
import { FIELD_TYPES, hex } from "./field-types.js";
import { padded } from "./schema.js";
import type { CtDirectionName, Direction, Field, FieldType, HashField, SetSpec } from "./rule.js";

/** An anonymous set that comes with a rule. The rule's `lookup` refers to it by `setId`, which is its index + 1. */
export interface AnonymousSet {
  /** `set` is "__set%d". */
  readonly info: SetInfo;
  readonly elements: ElementBatch;
}

/** The name that nft and the kernel use for a set that lives and dies with its rule. */
export const ANONYMOUS_NAME = "__set%d";

export interface StatementOptions {
  readonly family: Family;
  /** The specification of a named set. In an `inet` table it tells the family of an address field. */
  readonly setSpec?: (name: string) => SetSpec | undefined;
  /** The IP version to assume if nothing tells it. Absent: a statement that needs the version is refused. */
  readonly assumed?: 4 | 6;
}

/** The facts about the packet that are known at this point of the rule, and the rule's anonymous sets so far. */
export interface LowerContext extends StatementOptions {
  readonly anonymous: AnonymousSet[];
  version: 4 | 6 | undefined;
  l4proto: number | undefined;
}

/** A statement, or a part of one: its expressions, and its text as nft (>= 1.0.6) reads and prints it. */
export interface Lowered {
  readonly exprs: readonly Expr[];
  readonly text: string;
}

export interface LoweredRule extends Lowered {
  readonly anonymous: readonly AnonymousSet[];
}

export function lowered(text: string, ...exprs: readonly Expr[]): Lowered {
  return { exprs, text };
}

/** One kind of statement. Throws RangeError if the statement is meaningless. */
export type StatementKind<Statement> = (statement: Statement, context: LowerContext) => Lowered;

/** The IP version of all packets in a table of the family. Undefined if it is not fixed. */
export function versionOf(family: Family): 4 | 6 | undefined {
  return family === "ip" ? 4 : family === "ip6" ? 6 : undefined;
}

export const IP_NAME = { 4: "ip", 6: "ip6" } as const;
export const NFPROTO = { 4: NfProto.ip, 6: NfProto.ip6 } as const;

/** From here on, the rule only sees packets of this IP version. */
export function requireVersion(context: LowerContext, version: 4 | 6): Expr[] {
  if (context.version === version) return [];
  if (versionOf(context.family) !== undefined)
    throw new RangeError(`an IPv${version} match never matches in a table of family ${context.family}`);
  context.version = version;
  // In these families, nfproto is the table's own family, not the packet's.
  if (byEtherType(context.family)) return [loadMeta("protocol"), compare(ETHER_TYPE[version])];
  return [loadMeta("nfproto"), compare(Uint8Array.of(NFPROTO[version]))];
}

/** ETH_P_IP and ETH_P_IPV6, in network byte order. */
const ETHER_TYPE = { 4: Uint8Array.of(0x08, 0x00), 6: Uint8Array.of(0x86, 0xdd) } as const;

function byEtherType(family: Family): boolean {
  return family === "bridge" || family === "netdev";
}

/** Returns the condition of `requireVersion` as nft's text. "" if the table's family implies it. */
export function versionText({ family }: LowerContext, version: 4 | 6): string {
  if (byEtherType(family)) return `meta protocol ${IP_NAME[version]} `;
  return family === "inet" ? `meta nfproto ${version === 4 ? "ipv4" : "ipv6"} ` : "";
}

export function requireL4proto(context: LowerContext, l4proto: number): Expr[] {
  if (context.l4proto === l4proto) return [];
  context.l4proto = l4proto;
  return [loadMeta("l4proto"), compare(Uint8Array.of(l4proto))];
}

function loadMeta(key: keyof typeof MetaKey, dreg = 1): Expr {
  return { type: "meta", key: MetaKey[key], dreg };
}

export function compare(data: Uint8Array, negate?: boolean): Expr {
  return { type: "cmp", sreg: 1, op: negate === true ? CmpOp.neq : CmpOp.eq, data };
}

export function masked(mask: Uint8Array, xor: Uint8Array = new Uint8Array(mask.length)): Expr {
  return { type: "bitwise", sreg: 1, dreg: 1, len: mask.length, op: BitwiseOp.maskXor, mask, xor };
}

/** A look-up as a condition. */
export function lookup(set: string, negate: boolean | undefined, setId?: number): Expr {
  const flags = negate === true ? { flags: LookupFlag.invert } : {};
  return { type: "lookup", set, setId, sreg: 1, ...flags };
}

/** Number in host byte order. */
export function hostU32(value: number): Uint8Array {
  if (!Number.isInteger(value) || value < 0 || value > 0xffffffff)
    throw new RangeError(`not a 32-bit number: ${value}`);
  return new Uint8Array(Uint32Array.of(value).buffer);
}

/** Port in network byte order. */
export function portBytes(port: number): Uint8Array {
  if (!Number.isInteger(port) || port < 0 || port > 65535) throw new RangeError(`not a port: ${port}`);
  return Uint8Array.of(port >> 8, port & 0xff);
}

/** Returns the mask of a mark. Throws RangeError if the value has bits outside it. */
export function maskOf({ mask = 0xffffffff, value }: { readonly mask?: number; readonly value: number }): number {
  if ((value & ~mask) >>> 0 !== 0) throw new RangeError(`mark ${hex(value)} has bits outside its mask ${hex(mask)}`);
  return mask;
}

export function headerField(version: 4 | 6, direction: Direction, dreg = 1): Extract<Expr, { type: "payload" }> {
  const source = direction === "source";
  const [offset, len] = version === 4 ? [source ? 12 : 16, 4] : [source ? 8 : 24, 16];
  return { type: "payload", base: PayloadBase.network, offset, len, dreg };
}

export const ADDRESS_NAME = { source: "saddr", destination: "daddr" } as const;

/** Loads an address of the packet or its connection (`ct`). `ct` needs no guard: for the other family, the kernel ends the rule. */
export function addressField(version: 4 | 6, direction: Direction, ct?: CtDirectionName, dreg = 1): Lowered {
  const text = `${IP_NAME[version]} ${ADDRESS_NAME[direction]}`;
  if (ct === undefined) return lowered(text, headerField(version, direction, dreg));
  const key = CtKey[`${direction === "source" ? "src" : "dst"}${version === 4 ? "Ip" : "Ip6"}`];
  return lowered(`ct ${ct} ${text}`, { type: "ct", key, dreg, direction: CT_DIRECTION[ct] });
}

export function portField(direction: Direction, dreg = 1): Lowered {
  const [text, offset] = direction === "source" ? ["th sport", 0] : ["th dport", 2];
  return lowered(text, { type: "payload", base: PayloadBase.transport, offset, len: 2, dreg });
}

export function metaField(key: keyof typeof MetaKey, dreg = 1): Lowered {
  return lowered(key === "iifname" || key === "oifname" ? key : `meta ${key}`, loadMeta(key, dreg));
}

export const CT_MARK = lowered("ct mark", { type: "ct", key: CtKey.mark, dreg: 1 });

interface FieldKind {
  readonly types: readonly FieldType[];
  /**
   * Loads the field, as this type, into the register. Adds the conditions that it needs to `guards`: they use register 1, so
   * they come before the key's first field.
   */
  load(context: LowerContext, dreg: number, type: FieldType, guards: Expr[]): Lowered;
}

export const ADDRESS_TYPE = { 4: "ipv4_addr", 6: "ipv6_addr" } as const;
const ADDRESS = Object.values(ADDRESS_TYPE);

/** enum ip_conntrack_dir, linux/netfilter/nf_conntrack_tuple_common.h */
export const CT_DIRECTION: Readonly<Record<CtDirectionName, number>> = { original: 0, reply: 1 };

function address(direction: Direction, ct?: CtDirectionName): FieldKind {
  return {
    types: ADDRESS,
    load(context, dreg, type, guards) {
      const version = type === "ipv4_addr" ? 4 : 6;
      if (ct === undefined) guards.push(...requireVersion(context, version));
      return addressField(version, direction, ct, dreg);
    },
  };
}

function port(direction: Direction): FieldKind {
  return { types: ["inet_service"], load: (_, dreg) => portField(direction, dreg) };
}

function meta(key: keyof typeof MetaKey, ...types: readonly FieldType[]): FieldKind {
  return { types, load: (_, dreg) => metaField(key, dreg) };
}

const FIELDS: Readonly<Record<Extract<Field, string>, FieldKind>> = {
  saddr: address("source"),
  daddr: address("destination"),
  "ct-saddr": address("source", "original"),
  "ct-daddr": address("destination", "original"),
  l4proto: meta("l4proto", "inet_proto"),
  sport: port("source"),
  dport: port("destination"),
  iifname: meta("iifname", "ifname"),
  oifname: meta("oifname", "ifname"),
  mark: meta("mark", "mark", "index"),
  priority: meta("priority", "classid"),
};

/** A generated number, from `offset` to less than `offset + modulus`. */
function generated(field: Exclude<Field, string>): FieldKind {
  const { modulus, offset = 0 } = field;
  return {
    types: ["index", "mark"],
    load(context, dreg, _, guards) {
      if (!Number.isInteger(modulus) || modulus < 1 || modulus + offset > 0xffffffff)
        throw new RangeError(`${field.field}: mod ${modulus} offset ${offset} is out of range`);
      const range = { modulus, ...(offset === 0 ? {} : { offset }) };
      const { exprs, text } =
        field.field === "numgen" ? numgen(field, dreg, range) : jhash(field, dreg, range, context, guards);
      return lowered(offset === 0 ? text : `${text} offset ${offset}`, ...exprs);
    },
  };
}

type NumberRange = Pick<Extract<Expr, { type: "numgen" }>, "modulus" | "offset">;

function numgen({ mode, modulus }: Extract<Field, { field: "numgen" }>, dreg: number, range: NumberRange): Lowered {
  const ngType = mode === "random" ? NumgenType.random : NumgenType.incremental;
  return lowered(`numgen ${mode} mod ${modulus}`, { type: "numgen", dreg, ngType, ...range });
}

const WORDS = 16;
/** The hashed fields go where nft loads them: 4 words after the last word of the key, which is the number. */
const HASHED_OFFSET = 5;

function jhash(
  { of, modulus, seed }: HashField,
  dreg: number,
  range: NumberRange,
  context: LowerContext,
  guards: Expr[],
): Lowered {
  // In an inet table, the other fields of the rule have set the family.
  const type = context.version && ADDRESS_TYPE[context.version];
  const first = registerWord(dreg) + HASHED_OFFSET;
  const types = of.map(() => type);
  const { exprs, text, end } = loadFields(context, of, first, types, "jhash and the key before it", guards);
  if (end === first) throw new RangeError("jhash needs at least one field");
  const at = { sreg: register(first), dreg, len: (end - first) * 4 };
  // NFT_HASH_JENKINS
  const hash = { type: "hash", ...at, seed, ...range, hashType: 0 } as const;
  return lowered(`jhash ${text} mod ${modulus} seed ${hex(seed)}`, ...exprs, hash);
}

function kindOf(field: Field): FieldKind {
  return typeof field === "string" ? FIELDS[field] : generated(field);
}

/** Loads a concatenation, starting at word `first`. `end` is the word after it. */
function loadFields(
  context: LowerContext,
  fields: readonly Field[],
  first: number,
  types: readonly (FieldType | undefined)[],
  what: string,
  guards: Expr[],
): Lowered & { end: number } {
  let end = first;
  const parts = fields.map((field, index) => {
    const kind = kindOf(field);
    const type = kind.types === ADDRESS ? ADDRESS_TYPE[addressVersion(context, types[index])] : kind.types[0];
    const from = end;
    end += padded(FIELD_TYPES[type].bytes) / 4;
    if (end > WORDS) throw new RangeError(`${what}: exceeds the 64 bytes of the kernel's registers`);
    return kind.load(context, register(from), type, guards);
  });
  return { exprs: parts.flatMap(({ exprs }) => exprs), text: parts.map(({ text }) => text).join(" . "), end };
}

/** Loads a key, starting at word 0. `words` is its size. If the family does not tell the types of fields, the set does. */
export function loadKey(context: LowerContext, key: readonly Field[], set: string): Lowered & { words: number } {
  if (key.length === 0) throw new RangeError(`set ${set}: a lookup needs at least one field`);
  const types = context.setSpec?.(set)?.key;
  if (
    types !== undefined &&
    !(types.length === key.length && key.every((f, i) => kindOf(f).types.includes(types[i])))
  ) {
    const names = key.map((field) => (typeof field === "string" ? field : field.field)).join(" . ");
    throw new RangeError(`set ${set} has keys of ${types.join(" . ")}, so ${names} does not fit`);
  }
  if (key.slice(0, -1).some((field) => typeof field !== "string" && field.field === "jhash"))
    throw new RangeError(`set ${set}: jhash must be the last field of a key`);
  const guards: Expr[] = [];
  const { exprs, text, end } = loadFields(context, key, 0, types ?? [], `key of set ${set}`, guards);
  return { exprs: [...guards, ...exprs], text, words: end };
}

/** Loads the data that a map holds for the key into the register. Without an entry for the key, the rule ends. */
export function lookUp(context: LowerContext, key: readonly Field[], map: string, dreg: number): Lowered {
  const { exprs, text } = loadKey(context, key, map);
  const how = dreg === VERDICT_REGISTER ? "vmap" : "map";
  return lowered(`${text} ${how} @${map}`, ...exprs, { type: "lookup", set: map, sreg: 1, dreg });
}

function addressVersion({ family, assumed }: LowerContext, type: FieldType | undefined): 4 | 6 {
  const own = versionOf(family);
  const asked = versionOfType(type);
  if (own !== undefined && asked !== undefined && own !== asked)
    throw new RangeError(`an address of type ${type} does not fit a table of family ${family}`);
  const version = own ?? asked ?? assumed;
  if (version === undefined)
    throw new RangeError(
      `declare the set before the rule, because an address field in a table of family ${family} needs its types`,
    );
  return version;
}

export function versionOfType(type: string | undefined): 4 | 6 | undefined {
  return type === "ipv4_addr" ? 4 : type === "ipv6_addr" ? 6 : undefined;
}

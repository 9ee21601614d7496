/** What packets carry, as keys of look-ups: each field's expression and its text; and what all statements share. */
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
} from "../../kernel/constants.js";
import { registerWord } from "../../kernel/normalize.js";
import type { ElementBatch, Expr, Family, SetInfo } from "../../kernel/types.js";
import { padded } from "./schema.js";
import {
  type CtDirectionName,
  FIELD_BYTES,
  type Field,
  type FieldType,
  type HashField,
  type SetSpec,
} from "./types.js";

/** An anonymous set that comes with a rule; its `lookup` names it by `setId`, its index + 1. */
export interface AnonymousSet {
  /** `set` is "__set%d". */
  readonly info: SetInfo;
  readonly elements: ElementBatch;
}

export interface LoweredRule {
  readonly exprs: readonly Expr[];
  readonly anonymous: readonly AnonymousSet[];
}

/** How nft and the kernel name a set that lives and dies with its rule. */
export const ANONYMOUS_NAME = "__set%d";

export interface StatementOptions {
  readonly family: Family;
  /** Specification of a named set: in an `inet` table it tells the family of an address field. */
  readonly setSpec?: (name: string) => SetSpec | undefined;
}

/** State of the packet at this point of the rule, and what has been emitted. */
export interface LowerContext extends StatementOptions {
  readonly exprs: Expr[];
  readonly anonymous: AnonymousSet[];
  nfproto?: number;
  l4proto?: number;
}

/** One kind of statement. */
export interface StatementKind<Statement> {
  /** Appends its expressions. Throws RangeError for a statement that means nothing. */
  lower(context: LowerContext, statement: Statement): void;
  /** As nft (>= 1.0.6) reads it. */
  print(statement: Statement, options: StatementOptions): string;
}

/** The rest of the rule sees packets of this network protocol alone. */
export function requireNfproto(context: LowerContext, nfproto: number): void {
  if (context.nfproto === nfproto) return;
  if (context.family === "ip" || context.family === "ip6")
    throw new RangeError(`an ${nfproto === NfProto.ip ? "IPv4" : "IPv6"} match in a table of family ${context.family}`);
  context.exprs.push({ type: "meta", key: MetaKey.nfproto, dreg: 1 }, compare(Uint8Array.of(nfproto)));
  context.nfproto = nfproto;
}

export function requireL4proto(context: LowerContext, l4proto: number): void {
  if (context.l4proto === l4proto) return;
  context.exprs.push({ type: "meta", key: MetaKey.l4proto, dreg: 1 }, compare(Uint8Array.of(l4proto)));
  context.l4proto = l4proto;
}

export function compare(data: Uint8Array, negate?: boolean): Expr {
  return { type: "cmp", sreg: 1, op: negate === true ? CmpOp.neq : CmpOp.eq, data };
}

export function masked(mask: Uint8Array, xor: Uint8Array = new Uint8Array(mask.length)): Expr {
  return { type: "bitwise", sreg: 1, dreg: 1, len: mask.length, op: BitwiseOp.maskXor, mask, xor };
}

/** A look-up that is a condition. */
export function lookup(set: string, negate: boolean | undefined, setId?: number): Expr {
  const flags = negate === true ? { flags: LookupFlag.invert } : {};
  return { type: "lookup", set, ...(setId === undefined ? {} : { setId }), sreg: 1, ...flags };
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

/** Throws RangeError for bits of a mark that its mask leaves alone. Returns the mask. */
export function maskOf({ mask = 0xffffffff, value }: { readonly mask?: number; readonly value: number }): number {
  if ((value & ~mask) >>> 0 !== 0) throw new RangeError(`mark ${hex(value)} has bits outside its mask ${hex(mask)}`);
  return mask;
}

export function hex(value: number): string {
  return `0x${(value >>> 0).toString(16)}`;
}

/** As tc and nft print a class: major and minor number in hex; nothing and everything have names. */
export function classidText(value: number): string {
  if (value === 0) return "none";
  return value === 0xffffffff ? "root" : `${(value >>> 16).toString(16)}:${(value & 0xffff).toString(16)}`;
}

/** An address or port in a packet's header: where it is. */
export function headerField(version: 4 | 6 | "port", source: boolean, dreg = 1): Extract<Expr, { type: "payload" }> {
  if (version === "port") return { type: "payload", base: PayloadBase.transport, offset: source ? 0 : 2, len: 2, dreg };
  const [offset, len] = version === 4 ? [source ? 12 : 16, 4] : [source ? 8 : 24, 16];
  return { type: "payload", base: PayloadBase.network, offset, len, dreg };
}

interface FieldKind {
  readonly types: readonly FieldType[];
  /** Loads it into the register and returns its unpadded bytes. */
  load(context: LowerContext, dreg: number, type: FieldType | undefined): number;
  /** `ip`: name of the network protocol. */
  print(ip: string): string;
}

const ADDRESS = ["ipv4_addr", "ipv6_addr"] as const;

function address(source: boolean): FieldKind {
  return {
    types: ADDRESS,
    load(context, dreg, type) {
      const version = addressVersion(context, type);
      requireNfproto(context, version === 4 ? NfProto.ip : NfProto.ip6);
      const field = headerField(version, source, dreg);
      context.exprs.push(field);
      return field.len;
    },
    print: (ip) => `${ip} ${source ? "saddr" : "daddr"}`,
  };
}

/** enum ip_conntrack_dir, linux/netfilter/nf_conntrack_tuple_common.h */
export const CT_DIRECTION: Readonly<Record<CtDirectionName, number>> = { original: 0, reply: 1 };

/** An address of the packet's connection. No guard: the kernel ends the rule when the connection is of the other family. */
export function connectionAddress(version: 4 | 6, source: boolean, ct: CtDirectionName, dreg = 1): Expr {
  const key = version === 4 ? (source ? CtKey.srcIp : CtKey.dstIp) : source ? CtKey.srcIp6 : CtKey.dstIp6;
  return { type: "ct", key, dreg, direction: CT_DIRECTION[ct] };
}

function ctAddress(source: boolean): FieldKind {
  return {
    types: ADDRESS,
    load(context, dreg, type) {
      const version = addressVersion(context, type);
      context.exprs.push(connectionAddress(version, source, "original", dreg));
      return version === 4 ? 4 : 16;
    },
    print: (ip) => `ct original ${ip} ${source ? "saddr" : "daddr"}`,
  };
}

function port(source: boolean): FieldKind {
  return {
    types: ["inet_service"],
    load({ exprs }, dreg) {
      exprs.push(headerField("port", source, dreg));
      return FIELD_BYTES.inet_service;
    },
    print: () => (source ? "th sport" : "th dport"),
  };
}

function meta(key: "l4proto" | "iifname" | "oifname" | "mark" | "priority", ...types: readonly FieldType[]): FieldKind {
  return {
    types,
    load({ exprs }, dreg) {
      exprs.push({ type: "meta", key: MetaKey[key], dreg });
      return FIELD_BYTES[types[0]];
    },
    print: () => (types[0] === "ifname" ? key : `meta ${key}`),
  };
}

const FIELDS: Readonly<Record<Extract<Field, string>, FieldKind>> = {
  saddr: address(true),
  daddr: address(false),
  "ct-saddr": ctAddress(true),
  "ct-daddr": ctAddress(false),
  l4proto: meta("l4proto", "inet_proto"),
  sport: port(true),
  dport: port(false),
  iifname: meta("iifname", "ifname"),
  oifname: meta("oifname", "ifname"),
  mark: meta("mark", "mark", "index"),
  priority: meta("priority", "classid"),
};

type NumgenField = Extract<Field, { field: "numgen" }>;

function checkModulus(what: string, modulus: number, offset: number): void {
  if (!Number.isInteger(modulus) || modulus < 1 || modulus + offset > 0xffffffff)
    throw new RangeError(`${what} mod ${modulus} offset ${offset}`);
}

function numgen({ mode, modulus, offset = 0 }: NumgenField): FieldKind {
  return {
    types: ["index", "mark"],
    load({ exprs }, dreg) {
      checkModulus("numgen", modulus, offset);
      const ngType = mode === "random" ? NumgenType.random : NumgenType.incremental;
      exprs.push({ type: "numgen", dreg, modulus, ngType, ...(offset === 0 ? {} : { offset }) });
      return FIELD_BYTES.index;
    },
    print: () => `numgen ${mode} mod ${modulus}${offset === 0 ? "" : ` offset ${offset}`}`,
  };
}

const WORDS = 16;
/** What is hashed is loaded where nft loads it: 4 words behind the key, whose last word is the number. */
const HASHED_BEHIND = 5;

function jhash({ of, modulus, seed, offset = 0 }: HashField): FieldKind {
  return {
    types: ["index", "mark"],
    load(context, dreg) {
      checkModulus("jhash", modulus, offset);
      // In an inet table the rule's other fields have told the family.
      const type =
        context.nfproto === NfProto.ip ? "ipv4_addr" : context.nfproto === NfProto.ip6 ? "ipv6_addr" : undefined;
      const first = registerWord(dreg) + HASHED_BEHIND;
      let word = first;
      for (const field of of) {
        if (word < WORDS) word += padded(FIELDS[field].load(context, register(word), type)) / 4;
        else throw new RangeError("jhash and the key before it do not fit the kernel's registers");
      }
      if (word === first || word > WORDS) throw new RangeError("jhash of nothing, or of too much");
      const len = (word - first) * 4;
      const at = offset === 0 ? {} : { offset };
      // NFT_HASH_JENKINS
      context.exprs.push({ type: "hash", sreg: register(first), dreg, len, modulus, seed, ...at, hashType: 0 });
      return FIELD_BYTES.index;
    },
    print: (ip) =>
      `jhash ${of.map((field) => FIELDS[field].print(ip)).join(" . ")} mod ${modulus} seed ${hex(seed)}${offset === 0 ? "" : ` offset ${offset}`}`,
  };
}

function kindOf(field: Field): FieldKind {
  if (typeof field === "string") return FIELDS[field];
  return field.field === "numgen" ? numgen(field) : jhash(field);
}

/** Loads a concatenation from word 0 on and returns its words. `set` tells field types where the family does not. */
export function loadKey(context: LowerContext, key: readonly Field[], set: string): number {
  if (key.length === 0) throw new RangeError(`set ${set}: a look-up without fields`);
  const types = context.setSpec?.(set)?.key;
  if (
    types !== undefined &&
    !(types.length === key.length && key.every((f, i) => kindOf(f).types.includes(types[i])))
  ) {
    const names = key.map((field) => (typeof field === "string" ? field : field.field)).join(" . ");
    throw new RangeError(`set ${set} is keyed by ${types.join(" . ")}: ${names} does not fit`);
  }
  let word = 0;
  for (const [index, field] of key.entries()) {
    if (typeof field !== "string" && field.field === "jhash" && index < key.length - 1)
      throw new RangeError(`set ${set}: jhash stands last in a key`);
    word += padded(kindOf(field).load(context, register(word), types?.[index])) / 4;
    if (word > WORDS) throw new RangeError(`set ${set}: a key of more than 64 bytes`);
  }
  return word;
}

/** A concatenation. */
export function printKey(key: readonly Field[], set: string, { family, setSpec }: StatementOptions): string {
  const types = setSpec?.(set)?.key;
  const isV6 = (index: number): boolean => family === "ip6" || (family !== "ip" && types?.[index] === "ipv6_addr");
  return key.map((field, index) => kindOf(field).print(isV6(index) ? "ip6" : "ip")).join(" . ");
}

function addressVersion({ family }: StatementOptions, type: FieldType | undefined): 4 | 6 {
  const own = family === "ip" ? 4 : family === "ip6" ? 6 : undefined;
  const asked = type === "ipv4_addr" ? 4 : type === "ipv6_addr" ? 6 : undefined;
  if (own !== undefined && asked !== undefined && own !== asked)
    throw new RangeError(`an address of type ${type} in a table of family ${family}`);
  const version = own ?? asked;
  if (version === undefined)
    throw new RangeError(
      `an address field in a table of family ${family} needs a set that is declared before the rule`,
    );
  return version;
}

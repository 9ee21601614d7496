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
import { hex } from "./field-types.js";
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

/** What is known of the packet at this point of the rule, and the sets that have come with it. */
export interface LowerContext extends StatementOptions {
  readonly anonymous: AnonymousSet[];
  /** Of IP. */
  version?: 4 | 6;
  l4proto?: number;
}

/** One kind of statement. */
export interface StatementKind<Statement> {
  /** Its expressions. Throws RangeError for a statement that means nothing. */
  lower(statement: Statement, context: LowerContext): readonly Expr[];
  /** As nft (>= 1.0.6) reads it. */
  print(statement: Statement, options: StatementOptions): string;
}

/** Of all packets in a table of the family. */
export function versionOf(family: Family): 4 | 6 | undefined {
  return family === "ip" ? 4 : family === "ip6" ? 6 : undefined;
}

export const NFPROTO = { 4: NfProto.ip, 6: NfProto.ip6 } as const;

/** The rest of the rule sees packets of this version of IP alone. */
export function requireVersion(context: LowerContext, version: 4 | 6): Expr[] {
  if (context.version === version) return [];
  if (versionOf(context.family) !== undefined)
    throw new RangeError(`an IPv${version} match in a table of family ${context.family}`);
  context.version = version;
  return [loadMeta("nfproto"), compare(Uint8Array.of(NFPROTO[version]))];
}

export function requireL4proto(context: LowerContext, l4proto: number): Expr[] {
  if (context.l4proto === l4proto) return [];
  context.l4proto = l4proto;
  return [loadMeta("l4proto"), compare(Uint8Array.of(l4proto))];
}

export function loadMeta(key: keyof typeof MetaKey, dreg = 1): Expr {
  return { type: "meta", key: MetaKey[key], dreg };
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

/** An address or port in a packet's header: where it is. */
export function headerField(version: 4 | 6 | "port", source: boolean, dreg = 1): Extract<Expr, { type: "payload" }> {
  if (version === "port") return { type: "payload", base: PayloadBase.transport, offset: source ? 0 : 2, len: 2, dreg };
  const [offset, len] = version === 4 ? [source ? 12 : 16, 4] : [source ? 8 : 24, 16];
  return { type: "payload", base: PayloadBase.network, offset, len, dreg };
}

interface FieldKind {
  readonly types: readonly FieldType[];
  /** Loads it, as this type, into the register. */
  load(context: LowerContext, dreg: number, type: FieldType): Expr[];
  /** `ip`: name of the network protocol. */
  print(ip: string): string;
}

const ADDRESS_TYPE = { 4: "ipv4_addr", 6: "ipv6_addr" } as const;
const ADDRESS = Object.values(ADDRESS_TYPE);

/** enum ip_conntrack_dir, linux/netfilter/nf_conntrack_tuple_common.h */
export const CT_DIRECTION: Readonly<Record<CtDirectionName, number>> = { original: 0, reply: 1 };

/** An address of the packet's connection. No guard: the kernel ends the rule when the connection is of the other family. */
export function connectionAddress(version: 4 | 6, source: boolean, ct: CtDirectionName, dreg = 1): Expr {
  const key = version === 4 ? (source ? CtKey.srcIp : CtKey.dstIp) : source ? CtKey.srcIp6 : CtKey.dstIp6;
  return { type: "ct", key, dreg, direction: CT_DIRECTION[ct] };
}

/** `ct`: of the connection instead of the packet. */
function address(source: boolean, ct?: CtDirectionName): FieldKind {
  return {
    types: ADDRESS,
    load(context, dreg, type) {
      const version = type === "ipv4_addr" ? 4 : 6;
      if (ct !== undefined) return [connectionAddress(version, source, ct, dreg)];
      return [...requireVersion(context, version), headerField(version, source, dreg)];
    },
    print: (ip) => `${ct === undefined ? "" : `ct ${ct} `}${ip} ${source ? "saddr" : "daddr"}`,
  };
}

function port(source: boolean): FieldKind {
  return {
    types: ["inet_service"],
    load: (_, dreg) => [headerField("port", source, dreg)],
    print: () => (source ? "th sport" : "th dport"),
  };
}

function meta(key: "l4proto" | "iifname" | "oifname" | "mark" | "priority", ...types: readonly FieldType[]): FieldKind {
  return {
    types,
    load: (_, dreg) => [loadMeta(key, dreg)],
    print: () => (types[0] === "ifname" ? key : `meta ${key}`),
  };
}

const FIELDS: Readonly<Record<Extract<Field, string>, FieldKind>> = {
  saddr: address(true),
  daddr: address(false),
  "ct-saddr": address(true, "original"),
  "ct-daddr": address(false, "original"),
  l4proto: meta("l4proto", "inet_proto"),
  sport: port(true),
  dport: port(false),
  iifname: meta("iifname", "ifname"),
  oifname: meta("oifname", "ifname"),
  mark: meta("mark", "mark", "index"),
  priority: meta("priority", "classid"),
};

/** A number that is made, not carried: `offset` up to `offset + modulus`. */
function generated(
  { field, modulus, offset = 0 }: Exclude<Field, string>,
  load: (context: LowerContext, dreg: number, range: { modulus: number; offset?: number }) => Expr[],
  print: (ip: string) => string,
): FieldKind {
  return {
    types: ["index", "mark"],
    load(context, dreg) {
      if (!Number.isInteger(modulus) || modulus < 1 || modulus + offset > 0xffffffff)
        throw new RangeError(`${field} mod ${modulus} offset ${offset}`);
      return load(context, dreg, { modulus, ...(offset === 0 ? {} : { offset }) });
    },
    print: (ip) => `${print(ip)}${offset === 0 ? "" : ` offset ${offset}`}`,
  };
}

function numgen(field: Extract<Field, { field: "numgen" }>): FieldKind {
  const { mode, modulus } = field;
  const ngType = mode === "random" ? NumgenType.random : NumgenType.incremental;
  return generated(
    field,
    (_, dreg, range) => [{ type: "numgen", dreg, ngType, ...range }],
    () => `numgen ${mode} mod ${modulus}`,
  );
}

const WORDS = 16;
/** What is hashed is loaded where nft loads it: 4 words behind the key, whose last word is the number. */
const HASHED_BEHIND = 5;

function jhash(field: HashField): FieldKind {
  const { of, modulus, seed } = field;
  return generated(
    field,
    (context, dreg, range) => {
      // In an inet table the rule's other fields have told the family.
      const type = context.version && ADDRESS_TYPE[context.version];
      const first = registerWord(dreg) + HASHED_BEHIND;
      const { exprs, end } = loadFields(
        context,
        of,
        first,
        (): FieldType | undefined => type,
        "jhash and the key before it",
      );
      if (end === first) throw new RangeError("jhash of nothing");
      const at = { sreg: register(first), dreg, len: (end - first) * 4 };
      // NFT_HASH_JENKINS
      return [...exprs, { type: "hash", ...at, seed, ...range, hashType: 0 }];
    },
    (ip) => `jhash ${of.map((part) => FIELDS[part].print(ip)).join(" . ")} mod ${modulus} seed ${hex(seed)}`,
  );
}

function kindOf(field: Field): FieldKind {
  if (typeof field === "string") return FIELDS[field];
  return field.field === "numgen" ? numgen(field) : jhash(field);
}

/** Loads a concatenation from this word on; `end` is the one behind it. */
function loadFields(
  context: LowerContext,
  fields: readonly Field[],
  first: number,
  typeOf: (index: number) => FieldType | undefined,
  what: string,
): { exprs: Expr[]; end: number } {
  const exprs: Expr[] = [];
  let end = first;
  for (const [index, field] of fields.entries()) {
    const kind = kindOf(field);
    const type = kind.types === ADDRESS ? ADDRESS_TYPE[addressVersion(context, typeOf(index))] : kind.types[0];
    const from = end;
    end += padded(FIELD_BYTES[type]) / 4;
    if (end > WORDS) throw new RangeError(`${what}: more than the kernel's registers hold, 64 bytes`);
    exprs.push(...kind.load(context, register(from), type));
  }
  return { exprs, end };
}

/** Loads a key from word 0 on; `words` are its own. Where the family does not tell field types, the set does. */
export function loadKey(context: LowerContext, key: readonly Field[], set: string): { exprs: Expr[]; words: number } {
  if (key.length === 0) throw new RangeError(`set ${set}: a look-up without fields`);
  const types = context.setSpec?.(set)?.key;
  if (
    types !== undefined &&
    !(types.length === key.length && key.every((f, i) => kindOf(f).types.includes(types[i])))
  ) {
    const names = key.map((field) => (typeof field === "string" ? field : field.field)).join(" . ");
    throw new RangeError(`set ${set} is keyed by ${types.join(" . ")}: ${names} does not fit`);
  }
  if (key.slice(0, -1).some((field) => typeof field !== "string" && field.field === "jhash"))
    throw new RangeError(`set ${set}: jhash stands last in a key`);
  const { exprs, end } = loadFields(context, key, 0, (index) => types?.[index], `key of set ${set}`);
  return { exprs, words: end };
}

/** What a map holds for the key, in the register; ends the rule where it holds nothing. */
export function lookUp(context: LowerContext, key: readonly Field[], map: string, dreg: number): Expr[] {
  return [...loadKey(context, key, map).exprs, { type: "lookup", set: map, sreg: 1, dreg }];
}

/** A concatenation. */
export function printKey(key: readonly Field[], set: string, { family, setSpec }: StatementOptions): string {
  const types = setSpec?.(set)?.key;
  const isV6 = (index: number): boolean => family === "ip6" || (family !== "ip" && types?.[index] === "ipv6_addr");
  return key.map((field, index) => kindOf(field).print(isV6(index) ? "ip6" : "ip")).join(" . ");
}

function addressVersion({ family }: StatementOptions, type: FieldType | undefined): 4 | 6 {
  const own = versionOf(family);
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

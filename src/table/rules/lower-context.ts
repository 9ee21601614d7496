/** What all lowering shares: the state of a rule being lowered, guards, key loading, constants as bytes. */
import {
  CmpOp,
  CtKey,
  FibResult,
  LookupFlag,
  MetaKey,
  NfProto,
  NumgenType,
  PayloadBase,
  register,
} from "../../kernel/constants.js";
import type { ElementBatch, Expr, Family, SetInfo } from "../../kernel/types.js";
import { padded } from "./schema.js";
import { FIELD_BYTES, type Field, type FieldType, type SetSpec } from "./types.js";

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

export interface LowerOptions {
  readonly family: Family;
  /** Specification of a named set: in an `inet` table it tells the family of an address field. */
  readonly setSpec?: (name: string) => SetSpec | undefined;
}

/** What is known of the packet at this point of the rule, and what has been emitted. */
export interface LowerContext extends LowerOptions {
  readonly exprs: Expr[];
  readonly anonymous: AnonymousSet[];
  nfproto?: number;
  l4proto?: number;
}

/** NFPROTO_* of a family that has but one network protocol. */
export function nfprotoOf(family: Family): number | undefined {
  return family === "ip" ? NfProto.ip : family === "ip6" ? NfProto.ip6 : undefined;
}

/** The rest of the rule sees packets of this network protocol alone. */
export function requireNfproto(context: LowerContext, nfproto: number): void {
  if (context.nfproto === nfproto) return;
  if (context.family === "ip" || context.family === "ip6")
    throw new RangeError(`an ${nfproto === NfProto.ip ? "IPv4" : "IPv6"} match in a table of family ${context.family}`);
  context.exprs.push(
    { type: "meta", key: MetaKey.nfproto, dreg: 1 },
    { type: "cmp", sreg: 1, op: CmpOp.eq, data: Uint8Array.of(nfproto) },
  );
  context.nfproto = nfproto;
}

export function requireL4proto(context: LowerContext, l4proto: number): void {
  if (context.l4proto === l4proto) return;
  context.exprs.push(
    { type: "meta", key: MetaKey.l4proto, dreg: 1 },
    { type: "cmp", sreg: 1, op: CmpOp.eq, data: Uint8Array.of(l4proto) },
  );
  context.l4proto = l4proto;
}

/** Loads a concatenation from word 0 on and returns its words. `set` tells field types where the family does not. */
export function loadKey(context: LowerContext, key: readonly Field[], set: string): number {
  if (key.length === 0) throw new RangeError(`set ${set}: a look-up without fields`);
  const spec = context.setSpec?.(set);
  if (spec !== undefined) checkKey(spec, key);
  let word = 0;
  for (const [index, field] of key.entries()) {
    const bytes = loadField(context, field, register(word), spec?.key[index]);
    word += padded(bytes) / 4;
    if (word > 16) throw new RangeError(`set ${set}: a key of more than 64 bytes`);
  }
  return word;
}

function checkKey(spec: SetSpec, key: readonly Field[]): void {
  const same = spec.key.length === key.length && key.every((field, i) => matches(field, spec.key[i]));
  if (!same)
    throw new RangeError(
      `set ${spec.set} is keyed by ${spec.key.join(" . ")}: ${key.map(fieldName).join(" . ")} does not fit`,
    );
}

function fieldName(field: Field): string {
  return typeof field === "string" ? field : field.field;
}

function matches(field: Field, type: FieldType): boolean {
  if (typeof field !== "string") return type === "index" || type === "mark";
  switch (field) {
    case "saddr":
    case "daddr":
    case "ct-saddr":
    case "ct-daddr":
      return type === "ipv4_addr" || type === "ipv6_addr";
    case "l4proto":
      return type === "inet_proto";
    case "sport":
    case "dport":
      return type === "inet_service";
    case "iifname":
    case "oifname":
      return type === "ifname";
    case "mark":
      return type === "mark" || type === "index";
    case "priority":
      return type === "classid";
  }
}

/** Loads one field and returns its unpadded bytes. */
function loadField(context: LowerContext, field: Field, dreg: number, type: FieldType | undefined): number {
  if (typeof field !== "string") {
    const offset = field.offset ?? 0;
    if (!Number.isInteger(field.modulus) || field.modulus < 1 || field.modulus + offset > 0xffffffff)
      throw new RangeError(`numgen mod ${field.modulus} offset ${offset}`);
    const ngType = field.mode === "random" ? NumgenType.random : NumgenType.incremental;
    context.exprs.push({ type: "numgen", dreg, modulus: field.modulus, ngType, ...(offset === 0 ? {} : { offset }) });
    return 4;
  }
  switch (field) {
    case "saddr":
    case "daddr":
      return loadAddress(context, field === "saddr", dreg, type);
    case "ct-saddr":
    case "ct-daddr":
      return loadCtAddress(context, field === "ct-saddr", dreg, type);
    case "l4proto":
      context.exprs.push({ type: "meta", key: MetaKey.l4proto, dreg });
      return FIELD_BYTES.inet_proto;
    case "sport":
    case "dport":
      context.exprs.push({
        type: "payload",
        base: PayloadBase.transport,
        offset: field === "sport" ? 0 : 2,
        len: 2,
        dreg,
      });
      return FIELD_BYTES.inet_service;
    case "iifname":
    case "oifname":
      context.exprs.push({ type: "meta", key: field === "iifname" ? MetaKey.iifname : MetaKey.oifname, dreg });
      return FIELD_BYTES.ifname;
    case "mark":
      context.exprs.push({ type: "meta", key: MetaKey.mark, dreg });
      return FIELD_BYTES.mark;
    case "priority":
      context.exprs.push({ type: "meta", key: MetaKey.priority, dreg });
      return FIELD_BYTES.classid;
  }
}

function loadAddress(context: LowerContext, source: boolean, dreg: number, type: FieldType | undefined): number {
  const version = addressVersion(context, type);
  requireNfproto(context, version === 4 ? NfProto.ip : NfProto.ip6);
  const len = version === 4 ? 4 : 16;
  context.exprs.push({ type: "payload", base: PayloadBase.network, offset: addressOffset(version, source), len, dreg });
  return len;
}

function loadCtAddress(context: LowerContext, source: boolean, dreg: number, type: FieldType | undefined): number {
  const version = addressVersion(context, type);
  // No guard: the kernel ends the rule when the connection is of the other family.
  const key = version === 4 ? (source ? CtKey.srcIp : CtKey.dstIp) : source ? CtKey.srcIp6 : CtKey.dstIp6;
  // IP_CT_DIR_ORIGINAL
  context.exprs.push({ type: "ct", key, dreg, direction: 0 });
  return version === 4 ? 4 : 16;
}

function addressVersion(context: LowerContext, type: FieldType | undefined): 4 | 6 {
  const own = context.family === "ip" ? 4 : context.family === "ip6" ? 6 : undefined;
  const asked = type === "ipv4_addr" ? 4 : type === "ipv6_addr" ? 6 : undefined;
  if (own !== undefined && asked !== undefined && own !== asked)
    throw new RangeError(`an address of type ${type} in a table of family ${context.family}`);
  const version = own ?? asked;
  if (version === undefined)
    throw new RangeError(
      `an address field in a table of family ${context.family} needs a set that is declared before the rule`,
    );
  return version;
}

/** Where the address is in the network header. */
export function addressOffset(version: 4 | 6, source: boolean): number {
  return version === 4 ? (source ? 12 : 16) : source ? 8 : 24;
}

/** A look-up that is a condition. */
export function lookupExpr(set: string, negate: boolean | undefined, setId?: number): Expr {
  return {
    type: "lookup",
    set,
    ...(setId === undefined ? {} : { setId }),
    sreg: 1,
    ...(negate === true ? { flags: LookupFlag.invert } : {}),
  };
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

export function fibExpr(result: keyof typeof FibResult, flags: number): Expr {
  return { type: "fib", dreg: 1, result: FibResult[result], flags };
}

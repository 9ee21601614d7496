/** Set specifications in the kernel's terms. */
import { DATA_VERDICT, SetFlag } from "../../netlink/constants.js";
import { sameExprs } from "../../netlink/normalize.js";
import type { Expr, SetInfo } from "../../netlink/kernel.js";
import { ceilPowerOfTwo } from "../elements/packed-map.js";
import { FIELD_TYPES } from "./field-types.js";
import { checkComment, checkName, commentOf, setUserdata } from "./names-and-comments.js";
import type { FieldType, SetSpec } from "./rule.js";

/** NFT_REG32 registers hold 64 bytes; a key may take them all (NFT_DATA_VALUE_MAXLEN). */
const MAX_KEY_BYTES = 64;
/** The kernel keeps timeouts in jiffies: 10 ms at HZ=100. */
const TIMEOUT_SLACK_MS = 10n;
/** Smallest bound of a set of size "auto". */
const SMALLEST_AUTO_SIZE = 1024;

/** Bytes of a key or of data: a field of a concatenation is padded to 4 bytes, a single field is not. */
export function packedBytes(fields: readonly FieldType[]): number {
  if (fields.length === 1) return FIELD_TYPES[fields[0]].bytes;
  return fields.reduce((bytes, field) => bytes + padded(FIELD_TYPES[field].bytes), 0);
}

export interface RowShape {
  readonly keyLen: number;
  readonly dataLen: number;
  /** Keys end in an index. */
  readonly lists: boolean;
}

/** Bytes of a row's key and data. Of intervals a row is a range: first and last value, which the kernel holds as one or two elements. */
export function rowShape({ key, data = [], interval }: SetSpec): RowShape {
  const keyLen = packedBytes(key) * (interval === true ? 2 : 1);
  return { keyLen, dataLen: data === "verdict" ? 4 : packedBytes(data), lists: key.at(-1) === "index" };
}

export function padded(bytes: number): number {
  return Math.ceil(bytes / 4) * 4;
}

/** nft's type id of a concatenation: 6 bits a field. */
export function typeId(fields: readonly FieldType[]): number {
  return fields.reduce((all, field) => (all << 6) | FIELD_TYPES[field].id, 0);
}

/** Throws RangeError for a specification that the kernel or nft could not hold. */
export function checkSetSpec({ set, comment, key, data, interval, dynamic, size, timeoutMs, counters }: SetSpec): void {
  const refuse = (why: string): never => {
    throw new RangeError(`set ${set}: ${why}`);
  };
  checkName("set", set);
  checkComment(`set ${set}`, comment);
  if (key.length === 0) refuse("no key");
  if (data?.length === 0) refuse("no data");
  if (packedBytes(key) > MAX_KEY_BYTES) refuse(`a key of more than ${MAX_KEY_BYTES} bytes`);
  if (interval === true) {
    if (key.length !== 1 || data !== undefined || dynamic === true)
      refuse("an interval set has one key field, no data and is not dynamic");
    if (counters !== undefined) refuse("the elements of an interval set have no counters");
    if (timeoutMs !== undefined) refuse("the elements of an interval set have no timeouts");
    if (key[0] !== "ipv4_addr" && key[0] !== "ipv6_addr") refuse("intervals are of addresses");
  }
  if (typeof size === "number" && !(Number.isSafeInteger(size) && size > 0)) refuse(`size ${size}`);
}

const COUNTER: readonly Expr[] = [{ type: "counter" }];

/** What to create the set with. `size` is the resolved bound. */
export function setInfo(spec: SetSpec, size: number | undefined): SetInfo {
  // Of a concatenation nft knows each field's order by its type; of a single one it must be told.
  const userdata = setUserdata(
    spec.comment,
    (["key", "data"] as const).filter((part) => {
      const fields = spec[part];
      return Array.isArray(fields) && fields.length === 1 && FIELD_TYPES[fields[0] as FieldType].hostOrder;
    }),
  );
  return {
    set: spec.set,
    flags: setFlags(spec),
    keyType: typeId(spec.key),
    keyLen: packedBytes(spec.key),
    ...dataOf(spec),
    ...(spec.counters === undefined ? {} : { exprs: COUNTER }),
    size,
    ...(spec.timeoutMs !== undefined && spec.timeoutMs > 0 ? { timeout: BigInt(spec.timeoutMs) } : {}),
    userdata,
  };
}

function setFlags(spec: SetSpec): number {
  return (
    (spec.data === undefined ? 0 : SetFlag.map) |
    (spec.interval === true ? SetFlag.interval : 0) |
    (spec.dynamic === true ? SetFlag.eval : 0) |
    (spec.timeoutMs === undefined ? 0 : SetFlag.timeout)
  );
}

function dataOf(spec: SetSpec): Pick<SetInfo, "dataType" | "dataLen"> {
  if (spec.data === undefined) return {};
  if (spec.data === "verdict") return { dataType: DATA_VERDICT };
  return { dataType: typeId(spec.data), dataLen: packedBytes(spec.data) };
}

/**
 * Whether the kernel's set can serve as it is. The bound is judged by `fitsSize`. A different comment is
 * a reason to create the set anew (the kernel cannot change it), save for a dynamic one, which would lose what packets put there.
 */
export function serves(kernel: SetInfo, spec: SetSpec): boolean {
  // Asked of the same two at every change of the set's elements.
  if (servedBy.get(spec) === kernel) return true;
  const desired = setInfo(spec, undefined);
  const timeouts = (kernel.timeout ?? 0n) - (desired.timeout ?? 0n);
  const answer =
    sameKind(kernel, desired) &&
    (desired.dataLen === undefined || kernel.dataLen === desired.dataLen) &&
    timeouts <= TIMEOUT_SLACK_MS &&
    timeouts >= -TIMEOUT_SLACK_MS &&
    sameExprs(kernel.exprs ?? [], desired.exprs ?? []) &&
    (spec.dynamic === true || commentOf(kernel.userdata, "set") === spec.comment);
  if (answer) servedBy.set(spec, kernel);
  return answer;
}

/** Of the same keys and data, and filled in the same way. */
export function sameKind(a: SetInfo, b: SetInfo): boolean {
  return a.flags === b.flags && a.keyLen === b.keyLen && a.keyType === b.keyType && a.dataType === b.dataType;
}

/** By specification, the kernel's set that was found to serve it. Neither changes. */
const servedBy = new WeakMap<SetSpec, SetInfo>();

/** Whether the kernel's bound holds what comes: deleted elements keep their place until the transaction is over. */
export function fitsSize(kernelSize: number | undefined, spec: SetSpec, elements: number): boolean {
  if (kernelSize === undefined) return true;
  if (typeof spec.size === "number") return kernelSize >= spec.size;
  return kernelSize >= elements;
}

/** The bound to create the set with. */
export function sizeFor(spec: SetSpec, elements: number): number | undefined {
  if (spec.size !== "auto") return spec.size;
  return Math.max(SMALLEST_AUTO_SIZE, ceilPowerOfTwo(2 * elements));
}

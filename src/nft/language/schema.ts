/** Converts set specifications to the kernel's terms. */
import { DATA_VERDICT, SetFlag } from "../kernel/constants.js";
import { sameExprs } from "../kernel/normalize.js";
import type { Expr, SetInfo } from "../kernel/kernel.js";
import { ceilPowerOfTwo } from "../bytes/packed-map.js";
import { bytesOf, FIELD_TYPES, type FieldType } from "./fields/field-types.js";
import { commentOf } from "../bytes/names-and-comments.js";
import { FieldError } from "./fields/field-error.js";
import { kindOfMap } from "./object-kinds.js";
import type { SetSpec } from "./set-spec.js";
import { MAX_TYPES, namedUserdata } from "./set-userdata.js";
import { OBJECT_TYPES } from "./vocabulary.js";

/** NFT_REG32 registers hold 64 bytes; a key may take them all (NFT_DATA_VALUE_MAXLEN). */
const MAX_KEY_BYTES = 64;
/** The kernel keeps timeouts in jiffies: 10 ms at HZ=100. */
const TIMEOUT_SLACK_MS = 10n;
/** The smallest bound of a set with size "auto". */
const SMALLEST_AUTO_SIZE = 1024;

/** Bytes of a key or of data. The fields of a concatenation are padded to 4 bytes, a single field is not. */
export function packedBytes(fields: readonly FieldType[]): number {
  if (fields.length === 1) return bytesOf(fields[0]);
  return fields.reduce((bytes, field) => bytes + padded(bytesOf(field)), 0);
}

export interface RowShape {
  readonly keyLen: number;
  readonly dataLen: number;
  /** Whether keys end in an index. */
  readonly lists: boolean;
}

/** The fields of a data map's values. Empty for sets, and for maps of verdicts or objects. */
export function dataFields({ data }: Pick<SetSpec, "data">): readonly FieldType[] {
  return Array.isArray(data) ? (data as readonly FieldType[]) : [];
}

/** Whether the elements lead to chains (a verdict map) or named objects. Their rows have a number of the registry (verdict-registry.ts). */
export function hasTargets({ data }: Pick<SetSpec, "data">): boolean {
  return data !== undefined && !Array.isArray(data);
}

/** Bytes of a row's key and data. In an interval set, a row is a range with its first and last value. */
export function rowShape(spec: SetSpec): RowShape {
  const { key, interval } = spec;
  const keyLen = packedBytes(key) * (interval === true ? 2 : 1);
  const dataLen = hasTargets(spec) ? 4 : packedBytes(dataFields(spec));
  const lists = key.at(-1) === "index" && interval !== true;
  return { keyLen, dataLen, lists };
}

/** How the kernel holds a row: as an element with a key, as one with both ends of a range, or as an element for each end (intervals.ts). */
export type RowForm = "keys" | "ranges" | "starts and ends";

export function formOf({ key, interval }: SetSpec): RowForm {
  if (interval !== true) return "keys";
  return key.length > 1 ? "ranges" : "starts and ends";
}

export function padded(bytes: number): number {
  return Math.ceil(bytes / 4) * 4;
}

/** nft's type id of a concatenation: 6 bits per field. */
export function typeId(fields: readonly FieldType[]): number {
  return typeIdOf(fields.map((field) => FIELD_TYPES[field].id));
}

/** Like `typeId`, from the types' own ids. The kernel keeps 32 bits. */
export function typeIdOf(ids: readonly number[]): number {
  return ids.reduce((all, id) => ((all << 6) | id) >>> 0, 0);
}

/** Throws FieldError if the kernel or nft cannot hold the specification, whose fields are right on their own. */
export function checkSetSpec({ set, key, data, interval, dynamic }: SetSpec): void {
  const refuse = (field: string, expected: string, value: unknown): never => {
    throw new FieldError(`set ${set}, ${field}`, expected, value);
  };
  if (dynamic === true && kindOfMap({ data }) !== undefined)
    refuse("data", "no objects, which packets cannot fill", data);
  if (key.length > MAX_TYPES) refuse("key", `at most ${MAX_TYPES} fields, because nft cannot list others`, key);
  if (packedBytes(key) > MAX_KEY_BYTES) refuse("key", `at most ${MAX_KEY_BYTES} bytes`, key);
  if (packedBytes(dataFields({ data })) > MAX_KEY_BYTES) refuse("data", `at most ${MAX_KEY_BYTES} bytes`, data);
  // nft 1.0.6 crashes when it lists such a set.
  if (interval === true && key.some((field) => FIELD_TYPES[field].kind === "flags"))
    refuse("key", "no flags, which have no ranges", key);
  if (interval === true && dynamic === true) refuse("dynamic", "no interval set, which packets cannot fill", dynamic);
}

const COUNTER: readonly Expr[] = [{ type: "counter" }];

/** Returns the definition with which to create the set. `size` is the resolved bound. */
export function setInfo(spec: SetSpec, size: number | undefined): SetInfo {
  return {
    set: spec.set,
    flags: setFlags(spec),
    keyType: typeId(spec.key),
    keyLen: packedBytes(spec.key),
    ...(formOf(spec) === "ranges" && { fieldLens: spec.key.map(bytesOf) }),
    ...dataOf(spec),
    ...(spec.counters === undefined ? {} : { exprs: COUNTER }),
    size,
    ...(spec.timeoutMs !== undefined && spec.timeoutMs > 0 ? { timeout: BigInt(spec.timeoutMs) } : {}),
    // `serves` ignores byte orders, because a set without them works, and to create it again would cost its counters.
    userdata: namedUserdata(spec.comment, spec.key, dataFields(spec)),
  };
}

function setFlags(spec: SetSpec): number {
  return (
    (spec.data === undefined ? 0 : kindOfMap(spec) === undefined ? SetFlag.map : SetFlag.object) |
    (spec.interval === true ? SetFlag.interval : 0) |
    (formOf(spec) === "ranges" ? SetFlag.concat : 0) |
    (spec.dynamic === true ? SetFlag.eval : 0) |
    (spec.timeoutMs === undefined ? 0 : SetFlag.timeout)
  );
}

function dataOf(spec: SetSpec): Pick<SetInfo, "dataType" | "dataLen" | "objType"> {
  if (spec.data === undefined) return {};
  if (spec.data === "verdict") return { dataType: DATA_VERDICT };
  const kind = kindOfMap(spec);
  if (kind !== undefined) return { objType: OBJECT_TYPES[kind] };
  const fields = dataFields(spec);
  return { dataType: typeId(fields), dataLen: packedBytes(fields) };
}

/**
 * Whether the kernel's set can be kept. `fitsSize` checks the bound. The kernel cannot change a comment, so a set with another comment is created
 * again.
 */
export function serves(kernel: SetInfo, spec: SetSpec): boolean {
  // Asked for the same pair at every change of the set's elements.
  if (servedBy.get(spec) === kernel) return true;
  const desired = setInfo(spec, undefined);
  const timeouts = (kernel.timeout ?? 0n) - (desired.timeout ?? 0n);
  const answer =
    sameKind(kernel, desired) &&
    (desired.dataLen === undefined || kernel.dataLen === desired.dataLen) &&
    timeouts <= TIMEOUT_SLACK_MS &&
    timeouts >= -TIMEOUT_SLACK_MS &&
    sameExprs(kernel.exprs ?? [], desired.exprs ?? []) &&
    commentOf(kernel.userdata, "set") === spec.comment;
  if (answer) servedBy.set(spec, kernel);
  return answer;
}

/** Whether both have the same keys and data, and are filled in the same way. */
export function sameKind(a: SetInfo, b: SetInfo): boolean {
  return (["flags", "keyLen", "keyType", "dataType", "objType"] as const).every((field) => a[field] === b[field]);
}

/** By specification: the kernel's set that was found to serve it. Neither ever changes. */
const servedBy = new WeakMap<SetSpec, SetInfo>();

/** Whether the elements fit the kernel's bound. Deleted elements keep their place until the transaction ends. */
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

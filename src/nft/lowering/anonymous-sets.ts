/** Sets and maps that live and die with their rule: nft's `{ … }`. */
import { numberToBytes, type Range } from "../bytes/ip-ranges.js";
import { DATA_VERDICT, SetFlag } from "../kernel/constants.js";
import type { ElementBatch, SetInfo, Verdict } from "../kernel/kernel.js";
import { FIELD_TYPES } from "../language/fields/field-types.js";
import { rangeElements, startsAndEnds } from "../language/intervals.js";
import { typeIdOf } from "../language/schema.js";
import { anonymousUserdata, type KeyField } from "../language/set-userdata.js";
import type { TypedField } from "../language/fields/values.js";

/** An anonymous set that comes with a rule. The rule's `lookup` refers to it by `setId`, which is its index + 1. */
export interface AnonymousSet {
  /** `set` is "__set%d". */
  readonly info: SetInfo;
  readonly elements: ElementBatch;
}

/** The name that nft and the kernel use for a set that lives and dies with its rule. */
export const ANONYMOUS_NAME = "__set%d";

/** A set of ranges of one field, in network byte order. If all are single values, it is not an interval set. */
export function anonymousSet(ranges: readonly Range[], field: KeyField): AnonymousSet {
  const keyLen = field.loaded.length;
  const single = ranges.every((range) => range.from === range.to);
  const elements = single
    ? batch(
        keyLen,
        ranges.map((range) => numberToBytes(range.from, keyLen)),
      )
    : rangeElements(ranges, keyLen);
  return anonymous(single ? 0 : SetFlag.interval, [field], elements);
}

interface AnonymousRows {
  readonly key: readonly KeyField[];
  readonly keyLen: number;
  /** Key, the end of its range in an interval set, data. */
  readonly rows: readonly Uint8Array[];
  readonly isInterval?: boolean;
  readonly data?: MapData;
}

/** The data of a map: values of fields, or verdicts. */
export type MapData = { readonly fields: readonly TypedField[] } | { readonly verdicts: readonly Verdict[] };

/** A set of packed keys, or a map of packed keys and data. */
export function anonymousRows({ key, keyLen, rows, isInterval = false, data }: AnonymousRows): AnonymousSet {
  const verdicts = data !== undefined && "verdicts" in data ? { verdicts: data.verdicts } : {};
  const dataLen = rows[0].length - keyLen * (isInterval ? 2 : 1);
  const isConcat = key.length > 1;
  const plain = { ...batch(keyLen, rows), dataLen, ...verdicts };
  const elements = !isInterval
    ? plain
    : isConcat
      ? { ...plain, keyEnd: true }
      : startsAndEnds({ ...plain, keyLen: keyLen * 2 }, -1).batch;
  const flags =
    (data === undefined ? 0 : SetFlag.map) |
    (isInterval ? SetFlag.interval : 0) |
    (isInterval && isConcat ? SetFlag.concat : 0);
  return anonymous(flags, key, elements, data);
}

function batch(keyLen: number, rows: readonly Uint8Array[]): ElementBatch {
  return { count: rows.length, keyLen, dataLen: 0, bytes: Uint8Array.from(Buffer.concat(rows)) };
}

/** Numbers that are generated for a set of the rule are integers to nft. */
const typeOf = (fields: readonly TypedField[]): number =>
  typeIdOf(fields.map(({ type }) => FIELD_TYPES[type === "index" ? "integer" : type].id));

function anonymous(flags: number, key: readonly KeyField[], elements: ElementBatch, data?: MapData): AnonymousSet {
  const { keyLen, count: size, dataLen } = elements;
  const values = data !== undefined && "fields" in data ? data.fields : undefined;
  const isInterval = (flags & SetFlag.interval) !== 0;
  const info: SetInfo = {
    set: ANONYMOUS_NAME,
    flags: SetFlag.anonymous | SetFlag.constant | flags,
    keyType: typeOf(key),
    keyLen,
    size,
    ...((flags & SetFlag.concat) !== 0 && { fieldLens: key.map(({ width }) => width.length) }),
    ...(values !== undefined && { dataType: typeOf(values), dataLen }),
    ...(data !== undefined && values === undefined && { dataType: DATA_VERDICT }),
    userdata: anonymousUserdata(key, isInterval, values ?? (data && [])),
  };
  return { info, elements };
}

/** Sets and maps that live and die with their rule: nft's `{ … }`. */
import { numberToBytes, type Range } from "../../base/ip-ranges.js";
import { SetFlag } from "../../netlink/constants.js";
import type { ElementBatch, SetInfo } from "../../netlink/kernel.js";
import { FIELD_TYPES, type ValueType } from "./field-types.js";
import { rangeElements, startsAndEnds } from "./intervals.js";

/** An anonymous set that comes with a rule. The rule's `lookup` refers to it by `setId`, which is its index + 1. */
export interface AnonymousSet {
  /** `set` is "__set%d". */
  readonly info: SetInfo;
  readonly elements: ElementBatch;
}

/** The name that nft and the kernel use for a set that lives and dies with its rule. */
export const ANONYMOUS_NAME = "__set%d";

/** A set of ranges, in network byte order. If all are single values, it is not an interval set. */
export function anonymousSet(ranges: readonly Range[], type: ValueType, keyLen: number): AnonymousSet {
  const single = ranges.every((range) => range.from === range.to);
  const elements = single
    ? batch(
        keyLen,
        ranges.map((range) => numberToBytes(range.from, keyLen)),
      )
    : rangeElements(ranges, keyLen);
  return anonymous(SetFlag.constant | (single ? 0 : SetFlag.interval), FIELD_TYPES[type].id, elements);
}

interface AnonymousRows {
  readonly keyType: number;
  readonly keyLen: number;
  /** Bytes of each field of the key. */
  readonly fieldLens: readonly number[];
  /** Key, the end of its range in an interval set, data. */
  readonly rows: readonly Uint8Array[];
  readonly isInterval?: boolean;
  readonly map?: (Pick<SetInfo, "dataType" | "dataLen"> & { readonly verdicts?: ElementBatch["verdicts"] }) | undefined;
}

/** A set of packed keys, or a map of packed keys and data. */
export function anonymousRows({
  keyType,
  keyLen,
  fieldLens,
  rows,
  isInterval = false,
  map,
}: AnonymousRows): AnonymousSet {
  const { verdicts, ...data } = map ?? {};
  const dataLen = map === undefined ? 0 : (data.dataLen ?? 4);
  const isConcat = fieldLens.length > 1;
  const plain = { ...batch(keyLen, rows), dataLen, ...(verdicts === undefined ? {} : { verdicts }) };
  const elements = !isInterval
    ? plain
    : isConcat
      ? { ...plain, keyEnd: true }
      : startsAndEnds({ ...plain, keyLen: keyLen * 2 }, -1).batch;
  const flags =
    SetFlag.constant |
    (map === undefined ? 0 : SetFlag.map) |
    (isInterval ? SetFlag.interval : 0) |
    (isInterval && isConcat ? SetFlag.concat : 0);
  const set = anonymous(flags, keyType, elements, data);
  return isInterval && isConcat ? { ...set, info: { ...set.info, fieldLens } } : set;
}

function batch(keyLen: number, rows: readonly Uint8Array[]): ElementBatch {
  return { count: rows.length, keyLen, dataLen: 0, bytes: Uint8Array.from(Buffer.concat(rows)) };
}

function anonymous(
  flags: number,
  keyType: number,
  elements: ElementBatch,
  data?: Pick<SetInfo, "dataType" | "dataLen">,
): AnonymousSet {
  const { keyLen, count: size } = elements;
  return { info: { set: ANONYMOUS_NAME, flags: SetFlag.anonymous | flags, keyType, keyLen, size, ...data }, elements };
}

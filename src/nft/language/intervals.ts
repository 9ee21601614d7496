/**
 * Converts ranges to the kernel's elements, and back. In rows (rows.ts), a range is its first and its last value, one after the other.
 *
 * - A set with one field is a red-black tree. An element marks the start of a range. An element with the flag NFT_SET_ELEM_INTERVAL_END marks the first
 *   value after it, but is absent if the range ends at the largest value. Only the start has data, times, counters and a comment.
 * - A set with a concatenation (pipapo) has one element per range, with both ends.
 * - The kernel compares bytes, so fields in the machine's own byte order are stored, and looked up, in network byte order.
 */
import { bytesToNumber, numberToBytes, type Range } from "../bytes/ip-ranges.js";
import { ElementFlag, register } from "../kernel/constants.js";
import { batchLayout } from "../kernel/element-batch.js";
import type { ElementBatch, Expr } from "../kernel/kernel.js";
import { registerWord } from "../kernel/normalize.js";
import { readU32, writeU32 } from "../bytes/bytes.js";
import { bytesOf, type FieldType, FIELD_TYPES } from "./fields/field-types.js";
import type { SetSpec } from "./set-spec.js";

/** The first and the last value of a range, one after the other. */
export function rangeKey(range: Range, keyLen: number): Uint8Array {
  const key = new Uint8Array(keyLen * 2);
  key.set(numberToBytes(range.from, keyLen));
  key.set(numberToBytes(range.to, keyLen), keyLen);
  return key;
}

export function rangeOfKey(key: Uint8Array): Range {
  return { from: bytesToNumber(key.subarray(0, key.length / 2)), to: bytesToNumber(key.subarray(key.length / 2)) };
}

/** Returns the kernel's elements for ranges of one field, which must not overlap. */
export function rangeElements(ranges: readonly Range[], keyLen: number): ElementBatch {
  const bytes = Uint8Array.from(Buffer.concat(ranges.map((range) => rangeKey(range, keyLen))));
  return startsAndEnds({ count: ranges.length, keyLen: keyLen * 2, dataLen: 0, bytes }, -1).batch;
}

/**
 * Returns the kernel's elements for rows of ranges, and the place of each row's first element. An end directly follows its start: since Linux 6.18 the
 * kernel requires this order for deletion.
 * @param catchAll the row that is the catch-all element, or -1.
 */
export function startsAndEnds(rows: ElementBatch, catchAll: number): { batch: ElementBatch; starts: number[] } {
  const { keyLen, dataLen, extras } = rows;
  const shape = { ...rows, keyLen: keyLen / 2, flags: true };
  const [from, to] = [batchLayout(rows), batchLayout(shape)];
  const bytes = new Uint8Array(rows.count * 2 * to.stride);
  const starts: number[] = [];
  let count = 0;
  for (let row = 0; row < rows.count; row++) {
    const record = rows.bytes.subarray(row * from.stride, (row + 1) * from.stride);
    const at = count * to.stride;
    starts.push(count++);
    bytes.set(record.subarray(0, shape.keyLen), at);
    bytes.set(record.subarray(keyLen, keyLen + dataLen), at + shape.keyLen);
    bytes.set(record.subarray(keyLen + dataLen), at + to.flags + 4);
    if (row === catchAll) writeU32(bytes, at + to.flags, ElementFlag.catchall);
    else if (putNext(record.subarray(shape.keyLen, keyLen), bytes, at + to.stride, 1)) {
      writeU32(bytes, at + to.stride + to.flags, ElementFlag.intervalEnd);
      count++;
    }
  }
  const moved = extras && { extras: extras.map((extra) => ({ ...extra, record: starts[extra.record] })) };
  return { batch: { ...shape, ...moved, count, bytes: bytes.subarray(0, count * to.stride) }, starts };
}

/** Inserts the column of flags, and marks one record as the catch-all element. */
export function withCatchAll(batch: ElementBatch, catchAll: number): ElementBatch {
  const shape = { ...batch, flags: true };
  const [from, to] = [batchLayout(batch), batchLayout(shape)];
  const bytes = new Uint8Array(batch.count * to.stride);
  for (let i = 0; i < batch.count; i++) {
    const record = batch.bytes.subarray(i * from.stride, (i + 1) * from.stride);
    bytes.set(record.subarray(0, to.flags), i * to.stride);
    bytes.set(record.subarray(to.flags), i * to.stride + to.flags + 4);
  }
  writeU32(bytes, catchAll * to.stride + to.flags, ElementFlag.catchall);
  return { ...shape, bytes };
}

/** Returns the record of the catch-all element, or -1. */
export function catchAllIn({ bytes, count, ...shape }: ElementBatch): number {
  const { flags, stride } = batchLayout(shape);
  if (flags < 0) return -1;
  for (let i = 0; i < count; i++) if ((readU32(bytes, i * stride + flags) & ElementFlag.catchall) !== 0) return i;
  return -1;
}

/**
 * Returns dumped elements as rows of ranges. A catch-all element stays one. `complete` is false if a start is inside another range, or an end has no
 * start. In a set with timeouts, the kernel omits the start of a range that has expired, but not its end.
 */
export function rangeRows(batch: ElementBatch): { rows: ElementBatch; complete: boolean } {
  const { keyLen, dataLen, extras } = batch;
  if (batch.keyEnd === true) return { rows: { ...batch, keyLen: keyLen * 2, keyEnd: false }, complete: true };
  const { ranges, complete } = rangesIn(batch);
  const shape = { ...batch, keyLen: keyLen * 2 };
  const [from, to] = [batchLayout(batch), batchLayout(shape)];
  const bytes = new Uint8Array(ranges.length * to.stride);
  const rowOf = new Map<number, number>();
  for (const [row, { record, last }] of ranges.entries()) {
    rowOf.set(record, row);
    const source = batch.bytes.subarray(record * from.stride, (record + 1) * from.stride);
    bytes.set(source.subarray(0, keyLen), row * to.stride);
    bytes.set(last, row * to.stride + keyLen);
    bytes.set(source.subarray(keyLen, keyLen + dataLen), row * to.stride + keyLen * 2);
    bytes.set(source.subarray(keyLen + dataLen), row * to.stride + keyLen * 2 + dataLen);
  }
  const moved = extras?.flatMap((extra) => {
    const row = rowOf.get(extra.record);
    return row === undefined ? [] : { ...extra, record: row };
  });
  return { rows: { ...shape, ...(moved && { extras: moved }), count: ranges.length, bytes }, complete };
}

interface DumpedRange {
  /** The record of its start. */
  readonly record: number;
  readonly last: Uint8Array;
}

function rangesIn(batch: ElementBatch): { ranges: DumpedRange[]; complete: boolean } {
  const { stride, flags: flagsAt } = batchLayout(batch);
  const points = Array.from({ length: batch.count }, (_, record) => {
    const key = batch.bytes.subarray(record * stride, record * stride + batch.keyLen);
    return { key, record, flags: flagsAt < 0 ? 0 : readU32(batch.bytes, record * stride + flagsAt) };
  }).toSorted((a, b) => Buffer.compare(a.key, b.key) || b.flags - a.flags);
  const ranges: DumpedRange[] = [];
  let complete = true;
  let open: number | undefined;
  for (const { key, record, flags } of points) {
    if ((flags & ElementFlag.catchall) !== 0) ranges.push({ record, last: key });
    else if ((flags & ElementFlag.intervalEnd) === 0) {
      if (open !== undefined) {
        complete = false;
        ranges.push({ record: open, last: beforeIt(key) });
      }
      open = record;
    } else if (open !== undefined) {
      ranges.push({ record: open, last: beforeIt(key) });
      open = undefined;
      // In an interval set that does not start at zero, nft puts an interval end at zero first.
    } else if (batch.timeouts !== true && key.some((byte) => byte !== 0)) complete = false;
  }
  if (open !== undefined) ranges.push({ record: open, last: new Uint8Array(batch.keyLen).fill(0xff) });
  return { ranges, complete };
}

function beforeIt(value: Uint8Array): Uint8Array {
  const last = new Uint8Array(value.length);
  putNext(value, last, 0, -1);
  return last;
}

/** Writes the value after (1) or before (-1) this one. Returns false if there is none. */
function putNext(value: Uint8Array, bytes: Uint8Array, at: number, step: 1 | -1): boolean {
  const wraps = step === 1 ? 0xff : 0;
  let carry = true;
  for (let i = value.length - 1; i >= 0; i--) {
    bytes[at + i] = value[i] + (carry ? step : 0);
    carry &&= value[i] === wraps;
  }
  return !carry;
}

/**
 * Converts the keys of look-ups in interval sets to network byte order, as nft does. Other expressions stay.
 * @param setSpec the specification of a named set.
 */
export function inNetworkOrder(
  exprs: readonly Expr[],
  setSpec: (name: string) => SetSpec | undefined,
): readonly Expr[] {
  const converted = [...exprs];
  for (const expr of exprs) {
    if (expr.type !== "lookup") continue;
    const { interval, key = [] } = setSpec(expr.set) ?? {};
    if (interval !== true) continue;
    let word = registerWord(expr.sreg);
    for (const field of key) {
      const bytes = bytesOf(field);
      const reg = register(word);
      word += Math.ceil(bytes / 4);
      if (!isSwapped(field)) continue;
      const loads = (one: Expr): boolean => "dreg" in one && one.dreg === reg;
      const after = converted.slice(0, converted.indexOf(expr)).findLastIndex(loads);
      converted.splice(after + 1, 0, {
        type: "byteorder",
        sreg: reg,
        dreg: reg,
        op: TO_NETWORK,
        len: bytes,
        size: bytes,
      });
    }
  }
  return converted;
}

/** Whether ranges hold the field in another byte order than other keys. Names are no numbers. */
export function isSwapped(field: FieldType): boolean {
  const { kind, hostOrder } = FIELD_TYPES[field];
  return hostOrder === true && kind !== "text" && bytesOf(field) > 1;
}

/** NFT_BYTEORDER_HTON */
const TO_NETWORK = 1;

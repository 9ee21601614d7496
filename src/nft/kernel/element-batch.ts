import { LITTLE_ENDIAN } from "../../base/byte-order.js";
import { ElementFlag } from "./constants.js";
import type { ElementBatch, ElementExtra, Verdict } from "./kernel.js";

/** Byte offsets of the columns inside one record of an `ElementBatch`, or -1 for an absent column. */
export interface BatchLayout {
  readonly key: number;
  readonly keyEnd: number;
  readonly data: number;
  readonly flags: number;
  readonly timeout: number;
  readonly expiration: number;
  readonly counter: number;
  /** Bytes per record. */
  readonly stride: number;
}

type BatchShape = Pick<
  ElementBatch,
  "keyLen" | "dataLen" | "keyEnd" | "flags" | "timeouts" | "expirations" | "counters"
>;

/** Returns the layout of a batch's columns: key, key end, data, flags, timeout, expiration, counter, without gaps. */
export function batchLayout(shape: BatchShape): BatchLayout {
  let at = shape.keyLen;
  const column = (present: boolean | undefined, bytes: number): number => {
    if (!present) return -1;
    at += bytes;
    return at - bytes;
  };
  const keyEnd = column(shape.keyEnd, shape.keyLen);
  const data = column(shape.dataLen > 0, shape.dataLen);
  const flags = column(shape.flags, 4);
  const timeout = column(shape.timeouts, 8);
  const expiration = column(shape.expirations, 8);
  const counter = column(shape.counters, 16);
  return { key: 0, keyEnd, data, flags, timeout, expiration, counter, stride: at };
}

/** Bytes of one record. */
export function strideOf(shape: BatchShape): number {
  return batchLayout(shape).stride;
}

/** One record of a batch, with its extras. */
export interface Element extends Omit<ElementExtra, "record"> {
  readonly key: Uint8Array;
  readonly keyEnd?: Uint8Array;
  /** From a data map. */
  readonly data?: Uint8Array;
  /** From a verdict map. */
  readonly verdict?: Verdict;
  /** Whether it is the end of a range. */
  readonly end: boolean;
  readonly catchall: boolean;
  /** ms; 0 if there is none. */
  readonly timeout: number;
  readonly expiration: number;
  readonly counted?: { readonly packets: number; readonly bytes: number };
}

export function* elementsOf(batch: ElementBatch): Generator<Element> {
  const extras = new Map(batch.extras?.map(({ record, ...extra }) => [record, extra]));
  for (let i = 0; i < batch.count; i++) yield { ...elementAt(batch, i), ...extras.get(i) };
}

export function elementAt(batch: ElementBatch, index: number): Element {
  const layout = batchLayout(batch);
  const { bytes, keyLen, dataLen, verdicts } = batch;
  const at = index * layout.stride;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const u32 = (from: number): number => view.getUint32(from, LITTLE_ENDIAN);
  const u64 = (column: number): number => (column < 0 ? 0 : Number(view.getBigUint64(at + column, LITTLE_ENDIAN)));
  const flags = layout.flags < 0 ? 0 : u32(at + layout.flags);
  const data = layout.data < 0 ? undefined : bytes.slice(at + layout.data, at + layout.data + dataLen);
  const verdict = data === undefined ? undefined : verdicts?.[u32(at + layout.data)];
  return {
    key: bytes.slice(at, at + keyLen),
    ...(layout.keyEnd >= 0 && { keyEnd: bytes.slice(at + layout.keyEnd, at + layout.keyEnd + keyLen) }),
    end: (flags & ElementFlag.intervalEnd) !== 0,
    catchall: (flags & ElementFlag.catchall) !== 0,
    timeout: u64(layout.timeout),
    expiration: u64(layout.expiration),
    ...(layout.counter >= 0 && { counted: { packets: u64(layout.counter), bytes: u64(layout.counter + 8) } }),
    ...(verdict !== undefined ? { verdict } : data !== undefined && { data }),
  };
}

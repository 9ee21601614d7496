import type { ElementBatch } from "./kernel.js";

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

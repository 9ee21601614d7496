import { batchLayout, elementsOf } from "../../kernel/element-batch.js";
import type { ElementBatch } from "../../kernel/kernel.js";
import { Refusal, type ElementState } from "../state/state.js";

/** An element of an operation, in the form of the state. */
export interface GivenElement extends Pick<
  ElementState,
  "count" | "key" | "keyEnd" | "end" | "catchall" | "data" | "verdict" | "userdata"
> {
  readonly object: string | undefined;
  /** ms. 0: none. */
  readonly timeout: bigint;
  readonly expiration: bigint;
}

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString("latin1");

/** Reads the records of a batch. */
export function* givenElements(batch: ElementBatch): Generator<GivenElement> {
  const { stride, timeout, expiration, counter } = batchLayout(batch);
  const bytes = Buffer.from(batch.bytes.buffer, batch.bytes.byteOffset, batch.bytes.byteLength);
  const extras = new Map(batch.extras?.map((extra) => [extra.record, extra]));
  let record = 0;
  for (const { key, keyEnd = key, data, verdict, end, catchall } of elementsOf(batch)) {
    const at = record * stride;
    const number = (column: number): bigint => (column < 0 ? 0n : bytes.readBigUInt64LE(at + column));
    const extra = extras.get(record++);
    yield {
      key: catchall ? "" : text(key),
      keyEnd: catchall ? "" : text(keyEnd),
      end,
      catchall,
      data: data === undefined || end ? "" : text(data),
      verdict: end ? undefined : verdict,
      object: extra?.object,
      userdata: extra?.userdata?.slice(),
      timeout: number(timeout),
      expiration: number(expiration),
      count: counter < 0 ? undefined : { packets: number(counter), bytes: number(counter + 8) },
    };
  }
}

/** Runs `each` for every element of a batch. An error says which record it was. */
export function forEachGiven(batch: ElementBatch, each: (given: GivenElement) => void): void {
  let record = 0;
  try {
    for (const given of givenElements(batch)) {
      each(given);
      record++;
    }
  } catch (error) {
    throw error instanceof Refusal ? new Refusal(error.errno, record, error.text) : error;
  }
}

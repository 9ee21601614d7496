/** Converts rows to the element batches of the kernel interface and back: packs changes, reads dumps. */
import { inSlices } from "../../base/time-slice.js";
import { batchLayout } from "../kernel/element-batch.js";
import type { ElementBatch, ElementExtra, Verdict } from "../kernel/kernel.js";
import { startsAndEnds, withCatchAll } from "../language/intervals.js";
import { commentData } from "../bytes/names-and-comments.js";
import type { RowForm } from "../language/schema.js";
import { wordsFor, writeU64 } from "../bytes/bytes.js";
import { DATA, RowList } from "../bytes/packed-map.js";
import type { Rows } from "./rows.js";
import type { VerdictRegistry } from "./verdict-registry.js";

type Shape = Pick<ElementBatch, "count" | "keyLen" | "dataLen" | "counters" | "timeouts" | "expirations" | "extras">;

/** The timeout and the time left, 64 bits each. */
const TIME_WORDS = 4;
/** Packets and bytes, 64 bits each. */
const COUNTER_WORDS = 4;

/** The columns after the data of each addition. */
interface Columns {
  readonly counters: boolean;
  readonly timeouts: boolean;
}

interface WriterOptions extends Columns {
  /** Data is the number of a named object, which is not part of the packed records. */
  readonly objects: boolean;
}

function wordsOfColumns({ counters, timeouts }: Columns): number {
  return (timeouts ? TIME_WORDS : 0) + (counters ? COUNTER_WORDS : 0);
}

/** The changes of one transaction to the elements of a set, and the rows concerned. */
export interface PackedChange {
  /** The set is created from scratch: every desired element is added, none is deleted individually. */
  readonly full: boolean;
  readonly adds?: ElementBatch;
  readonly deletes?: ElementBatch;
  /** Indices of the `adds` that start from the counter of the kernel's element. */
  readonly carry?: Uint32Array;
  readonly addRows: RowList;
  readonly deleteRows: RowList;
  /** Rows whose grace period begins with this transaction. */
  readonly deferredRows: RowList;
  /** Rows without an operation that become free when the transaction is committed. */
  readonly otherRows: RowList;
}

/** Writes the elements of rows, and the verdicts that they use, into growing buffers. */
export class BatchWriter {
  readonly addRows: RowList;
  readonly deleteRows = new RowList();
  readonly deferredRows = new RowList();
  readonly otherRows = new RowList();
  #adds: Int32Array<ArrayBuffer>;
  readonly #dataWords: number;
  readonly #stride: number;
  #deletes = new Int32Array(16);
  #carry: RowList | undefined;
  /** The index of the catch-all element, or -1. */
  readonly #catchAll = { add: -1, delete: -1 };
  /** Timeout, remaining time and comment of the next addition. */
  time: readonly [timeoutMs: number, leftMs: number] = [0, 0];
  comment: string | undefined;
  readonly #extras: ElementExtra[] = [];
  readonly #used: Verdict[] = [];
  readonly #numbers = new Map<number, number>();

  constructor(
    readonly rows: Rows,
    readonly verdicts: VerdictRegistry | undefined,
    /** Expected number of additions. */
    additions: number,
    readonly columns: WriterOptions,
  ) {
    this.#dataWords = columns.objects ? 0 : rows.dataWords;
    this.#stride = rows.keyWords + this.#dataWords + wordsOfColumns(columns);
    this.#adds = new Int32Array(additions * this.#stride);
    this.addRows = new RowList(additions);
  }

  /** Adds the row's data. A row that is not desired has the data that the kernel holds. */
  add(row: number, packets = 0, bytes = 0): void {
    const { keyWords } = this.rows;
    const dataWords = this.#dataWords;
    const to = this.addRows.length * this.#stride;
    const adds = (this.#adds = roomFor(this.#adds, to + this.#stride));
    if (this.comment !== undefined || this.columns.objects) this.#addExtra(row);
    if (row === this.rows.unkeyed) this.#catchAll.add = this.addRows.length;
    this.addRows.push(row);
    let column = to + keyWords + dataWords;
    if (this.columns.timeouts) {
      const [timeoutMs, leftMs] = this.time;
      writeU64(adds, column, timeoutMs);
      writeU64(adds, column + 2, leftMs);
      column += TIME_WORDS;
    }
    if (packets > 0) {
      writeU64(adds, column, packets);
      writeU64(adds, column + 2, bytes);
    }
    this.rows.copyKey(row, adds, to);
    const data = this.rows.words(row);
    const at = this.rows.at(row) + DATA;
    if (this.verdicts !== undefined && dataWords > 0) adds[to + keyWords] = this.#number(data[at]);
    else for (let i = 0; i < dataWords; i++) adds[to + keyWords + i] = data[at + i];
  }

  #addExtra(row: number): void {
    const target = this.columns.objects
      ? this.verdicts?.get(this.rows.words(row)[this.rows.at(row) + DATA])
      : undefined;
    this.#extras.push({
      record: this.addRows.length,
      ...(target !== undefined && "object" in target && { object: target.object }),
      ...(this.comment !== undefined && { userdata: commentData(this.comment)! }),
    });
    this.comment = undefined;
  }

  /** Lets the next addition start from the counter of the kernel's element with the same key. */
  carryNext(): void {
    this.#carry ??= new RowList();
    this.#carry.push(this.addRows.length);
  }

  delete(row: number): void {
    const { keyWords } = this.rows;
    const to = this.deleteRows.length * keyWords;
    this.#deletes = roomFor(this.#deletes, to + keyWords);
    if (row === this.rows.unkeyed) this.#catchAll.delete = this.deleteRows.length;
    this.deleteRows.push(row);
    this.rows.copyKey(row, this.#deletes, to);
  }

  finish(full: boolean, form: RowForm): PackedChange {
    const { addRows, deleteRows, deferredRows, otherRows } = this;
    const { keyLen } = this.rows;
    const dataLen = this.columns.objects ? 0 : this.rows.dataLen;
    let carry = this.#carry?.rows.subarray(0, this.#carry.length);
    const batch = (words: Int32Array<ArrayBuffer>, shape: Shape, catchAll: number): ElementBatch => {
      const packed = { ...shape, bytes: unpadded(words, shape) };
      if (form === "starts and ends") {
        const { batch: elements, starts } = startsAndEnds(packed, catchAll);
        if (shape === adds) carry = carry?.map((index) => starts[index]);
        return elements;
      }
      const elements = form === "ranges" ? { ...packed, keyLen: keyLen / 2, keyEnd: true } : packed;
      return catchAll < 0 ? elements : withCatchAll(elements, catchAll);
    };
    const verdicts = this.verdicts === undefined || this.columns.objects ? {} : { verdicts: this.#used };
    const counters = this.columns.counters ? { counters: true } : {};
    const times = this.columns.timeouts ? { timeouts: true, expirations: true } : {};
    const extras = this.#extras.length === 0 ? {} : { extras: this.#extras };
    const adds = { count: addRows.length, keyLen, dataLen, ...verdicts, ...times, ...counters, ...extras };
    const deletes = { count: deleteRows.length, keyLen, dataLen: 0 };
    return {
      full,
      adds: adds.count > 0 ? batch(this.#adds, adds, this.#catchAll.add) : undefined,
      deletes: deletes.count > 0 ? batch(this.#deletes, deletes, this.#catchAll.delete) : undefined,
      carry,
      addRows,
      deleteRows,
      deferredRows,
      otherRows,
    };
  }

  #number(id: number): number {
    const known = this.#numbers.get(id);
    if (known !== undefined || this.verdicts === undefined) return known ?? 0;
    this.#numbers.set(id, this.#used.length);
    return this.#used.push(this.verdicts.get(id) as Verdict) - 1;
  }
}

function roomFor(buffer: Int32Array<ArrayBuffer>, length: number): Int32Array<ArrayBuffer> {
  if (length <= buffer.length) return buffer;
  const larger = new Int32Array(Math.max(length, buffer.length * 2));
  larger.set(buffer);
  return larger;
}

function unpadded(words: Int32Array<ArrayBuffer>, shape: Shape): Uint8Array {
  const { count, keyLen, dataLen, counters = false, timeouts = false } = shape;
  const keyBytes = wordsFor(keyLen) * 4;
  const dataBytes = wordsFor(dataLen) * 4;
  const tail = wordsOfColumns({ counters, timeouts }) * 4;
  const from = keyBytes + dataBytes + tail;
  const padded = new Uint8Array(words.buffer, words.byteOffset, count * from);
  const to = keyLen + dataLen + tail;
  if (to === from) return padded;
  const bytes = new Uint8Array(count * to);
  for (let i = 0; i < count; i++) {
    const record = padded.subarray(i * from, (i + 1) * from);
    bytes.set(record.subarray(0, keyLen), i * to);
    bytes.set(record.subarray(keyBytes, keyBytes + dataLen), i * to + keyLen);
    bytes.set(record.subarray(keyBytes + dataBytes), i * to + keyLen + dataLen);
  }
  return bytes;
}

/** Called with one element and the number of its record: its key at `words[at]`, its data at `data[dataAt]`. The data of a verdict map is the registry's number. */
export type RecordVisitor = (words: Int32Array, at: number, data: Int32Array, dataAt: number, record: number) => void;

/** A column of 64-bit numbers. */
export type Column = "timeout" | "expiration" | "counter";

/** The word of a record, as `eachRecord` visits it, at which a column begins. -1 if the batch has no such column. */
export function columnWord(batch: ElementBatch, column: Column): number {
  const { keyLen, dataLen } = batch;
  const at = batchLayout(batch)[column];
  return at < 0 ? -1 : wordsFor(keyLen) + wordsFor(dataLen) + (at - keyLen - dataLen) / 4;
}

/** Like `eachRecord`, for a map of named objects. */
export function eachObjectRecord(
  batch: ElementBatch,
  numberOf: (object: string) => number,
  visit: RecordVisitor,
): Promise<void> {
  const numbers = new Map(batch.extras?.map(({ record, object }) => [record, numberOf(object ?? "")]));
  const number = new Int32Array(1);
  const visitRecord: RecordVisitor = (words, at, _data, _dataAt, record) => {
    number[0] = numbers.get(record) ?? 0;
    visit(words, at, number, 0, record);
  };
  return eachRecord(batch, () => 0, visitRecord);
}

/** Visits every element of a dump, also a catch-all, whose key means nothing. Yields to the event loop now and then. */
export async function eachRecord(
  batch: ElementBatch,
  numberOf: (verdict: Verdict) => number,
  visit: RecordVisitor,
): Promise<void> {
  const { stride, dataAt, words } = wordsOf(batch);
  const numbers = batch.verdicts?.map(numberOf);
  const verdict = new Int32Array(1);
  await inSlices(batch.count, (from, to) => {
    for (let i = from; i < to; i++) {
      const at = i * stride;
      if (numbers === undefined) visit(words, at, words, at + dataAt, i);
      else {
        verdict[0] = numbers[words[at + dataAt]];
        visit(words, at, verdict, 0, i);
      }
    }
  });
}

/** Returns the records as words. Keys or data of 1 or 2 bytes are padded first. */
function wordsOf(batch: ElementBatch): { words: Int32Array; stride: number; dataAt: number } {
  const { keyLen, dataLen, count } = batch;
  const layout = batchLayout(batch);
  if ((keyLen | dataLen) % 4 === 0) {
    const aligned = batch.bytes.byteOffset % 4 === 0 ? batch.bytes : new Uint8Array(batch.bytes);
    const words = new Int32Array(aligned.buffer, aligned.byteOffset, aligned.length >>> 2);
    return { words, stride: layout.stride / 4, dataAt: Math.max(0, layout.data >> 2) };
  }
  // The flags and the columns after them are whole words.
  const tail = layout.stride - keyLen - dataLen;
  const stride = wordsFor(keyLen) + wordsFor(dataLen) + tail / 4;
  const words = new Int32Array(count * stride);
  const bytes = new Uint8Array(words.buffer);
  for (let i = 0; i < count; i++) {
    const record = batch.bytes.subarray(i * layout.stride, (i + 1) * layout.stride);
    const to = i * stride * 4;
    bytes.set(record.subarray(0, keyLen), to);
    if (dataLen > 0) bytes.set(record.subarray(layout.data, layout.data + dataLen), to + wordsFor(keyLen) * 4);
    bytes.set(record.subarray(layout.stride - tail), to + (wordsFor(keyLen) + wordsFor(dataLen)) * 4);
  }
  return { words, stride, dataAt: wordsFor(keyLen) };
}

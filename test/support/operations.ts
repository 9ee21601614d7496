/** Short helpers for operations and bytes in the suite. */
import { DataTypeId, DATA_VERDICT, SetFlag } from "../../src/nft/kernel/constants.js";
import { batchLayout } from "../../src/nft/kernel/element-batch.js";
import type { BaseChain, ElementBatch, Expr, Op, SetInfo, TableRef, Verdict } from "../../src/nft/kernel/kernel.js";

/** The table that a test uses. */
export const T: TableRef = { family: "ip", table: "t" };

export const newTable = (op: "add" | "create" = "add"): Op => ({ op, kind: "table", ...T });
export const newChain = (chain: string, base?: BaseChain, op: "add" | "create" = "add"): Op => ({
  op,
  kind: "chain",
  ...T,
  chain,
  ...(base && { base }),
});
export const input: BaseChain = { type: "filter", hook: 1, priority: 0 };

export const newRule = (chain: string, ...exprs: Expr[]): Op => ({ op: "add", kind: "rule", ...T, chain, exprs });
export const newSet = (info: SetInfo, op: "add" | "create" = "add", id?: number): Op => ({
  op,
  kind: "set",
  ...T,
  ...info,
  id,
});

/** A set of IPv4 addresses. */
export const addressSet = (set: string, more: Partial<SetInfo> = {}): SetInfo => ({
  set,
  flags: 0,
  keyType: DataTypeId.ipv4_addr,
  keyLen: 4,
  ...more,
});
export const addressMap = (set: string, more: Partial<SetInfo> = {}): SetInfo =>
  addressSet(set, { flags: SetFlag.map, dataType: DataTypeId.ipv4_addr, dataLen: 4, ...more });
export const verdictMap = (set: string, more: Partial<SetInfo> = {}): SetInfo =>
  addressSet(set, { flags: SetFlag.map, dataType: DATA_VERDICT, ...more });

export const jump = (chain: string): Expr => ({ type: "immediate", dreg: 0, data: { verdict: "jump", chain } });
export const goto = (chain: string): Verdict => ({ verdict: "goto", chain });
export const verdict = (name: "accept" | "drop"): Expr => ({ type: "immediate", dreg: 0, data: { verdict: name } });
export const daddr: Expr = { type: "payload", base: 1, offset: 16, len: 4, dreg: 1 };
export const lookup = (set: string, more: { dreg?: number; setId?: number } = {}): Expr => ({
  type: "lookup",
  set,
  sreg: 1,
  ...more,
});

/** The four bytes of a dotted address. */
export const ip = (text: string): Uint8Array => Uint8Array.from(text.split("."), Number);

/** One element of a batch to be packed. */
export interface Element {
  readonly key: Uint8Array | string;
  readonly keyEnd?: Uint8Array | string;
  readonly data?: Uint8Array | string | Verdict;
  readonly flags?: number;
  readonly timeout?: number;
  readonly expiration?: number;
  /** The name of its object. */
  readonly object?: string;
}

const bytesOf = (value: Uint8Array | string): Uint8Array => (typeof value === "string" ? ip(value) : value);

/** Packs elements in the form of `ElementBatch`; a column is present if any element has it. */
export function pack(elements: readonly Element[]): ElementBatch {
  const verdicts: Verdict[] = [];
  const dataOf = ({ data }: Element): Uint8Array => {
    if (data === undefined) return new Uint8Array();
    if (typeof data === "string" || data instanceof Uint8Array) return bytesOf(data);
    const number = verdicts.push(data) - 1;
    return new Uint8Array(Uint32Array.of(number).buffer);
  };
  const data = elements.map(dataOf);
  const shape = {
    keyLen: elements.length === 0 ? 4 : bytesOf(elements[0].key).length,
    dataLen: Math.max(0, ...data.map(({ length }) => length)),
    ...(elements.some(({ keyEnd }) => keyEnd !== undefined) && { keyEnd: true }),
    ...(elements.some(({ flags }) => flags !== undefined) && { flags: true }),
    ...(elements.some(({ timeout }) => timeout !== undefined) && { timeouts: true }),
    ...(elements.some(({ expiration }) => expiration !== undefined) && { expirations: true }),
  };
  const at = batchLayout(shape);
  const bytes = Buffer.alloc(at.stride * elements.length);
  elements.forEach((element, i) => {
    const start = i * at.stride;
    bytes.set(bytesOf(element.key), start);
    if (at.keyEnd >= 0) bytes.set(bytesOf(element.keyEnd ?? element.key), start + at.keyEnd);
    if (at.data >= 0) bytes.set(data[i], start + at.data);
    if (at.flags >= 0) bytes.writeUInt32LE(element.flags ?? 0, start + at.flags);
    if (at.timeout >= 0) bytes.writeBigUInt64LE(BigInt(element.timeout ?? 0), start + at.timeout);
    if (at.expiration >= 0) bytes.writeBigUInt64LE(BigInt(element.expiration ?? 0), start + at.expiration);
  });
  const extras = elements.flatMap(({ object }, record) => (object === undefined ? [] : { record, object }));
  return {
    count: elements.length,
    ...shape,
    ...(verdicts.length > 0 && { verdicts }),
    ...(extras.length > 0 && { extras }),
    bytes,
  };
}

/** An end comes before the start of the same key. */
const order = (row: Record<string, unknown>): string => `${String(row.key)} ${row.end === true ? 0 : 1}`;

/** Returns the elements of a batch as objects, keys and data in hex, sorted by key. */
export function unpack(batch: ElementBatch): Record<string, unknown>[] {
  const at = batchLayout(batch);
  const bytes = Buffer.from(batch.bytes.buffer, batch.bytes.byteOffset, batch.bytes.byteLength);
  const objects = new Map(batch.extras?.map(({ record, object }) => [record, object]));
  const rows = Array.from({ length: batch.count }, (_, i) => {
    const start = i * at.stride;
    const hex = (from: number, length: number): string => bytes.toString("hex", start + from, start + from + length);
    const flags = at.flags < 0 ? 0 : bytes.readUInt32LE(start + at.flags);
    const isEnd = (flags & 1) !== 0;
    const row: Record<string, unknown> = { key: (flags & 2) !== 0 ? "*" : hex(0, batch.keyLen) };
    if (at.keyEnd >= 0) row.keyEnd = hex(at.keyEnd, batch.keyLen);
    if (at.data >= 0 && !isEnd) {
      row.data = batch.verdicts ? batch.verdicts[bytes.readUInt32LE(start + at.data)] : hex(at.data, batch.dataLen);
    }
    if (objects.get(i) !== undefined) row.object = objects.get(i);
    if (isEnd) row.end = true;
    if (at.timeout >= 0) row.timeout = Number(bytes.readBigUInt64LE(start + at.timeout));
    if (at.expiration >= 0) row.expiration = Number(bytes.readBigUInt64LE(start + at.expiration));
    return row;
  });
  return rows.sort((a, b) => (order(a) < order(b) ? -1 : 1));
}

export const newElements = (set: string, elements: readonly Element[], op: "add" | "create" = "add"): Op => ({
  op,
  kind: "elements",
  ...T,
  set,
  elements: pack(elements),
});
export const noElements = (set: string, elements: readonly Element[], op: "delete" | "destroy" = "delete"): Op => ({
  op,
  kind: "elements",
  ...T,
  set,
  elements: pack(elements),
});
export const noChain = (chain: string, op: "delete" | "destroy" = "delete"): Op => ({ op, kind: "chain", ...T, chain });
export const noSet = (set: string, op: "delete" | "destroy" = "delete"): Op => ({ op, kind: "set", ...T, set });
export const noTable = (op: "delete" | "destroy" = "delete"): Op => ({ op, kind: "table", ...T });
export const noRule = (chain: string, handle: bigint, op: "delete" | "destroy" = "delete"): Op => ({
  op,
  kind: "rule",
  ...T,
  chain,
  handle,
});

/** A chain with its rules; with `base`, a base chain. */
export interface ChainWithRules {
  readonly base?: BaseChain;
  readonly rules?: readonly (readonly Expr[])[];
}

/** Adds a table with these chains, by name. */
export function tableWith(ref: TableRef, chains: Readonly<Record<string, ChainWithRules>>): Op[] {
  const all = Object.entries(chains);
  return [
    { op: "add", kind: "table", ...ref },
    ...all.map(([chain, { base }]): Op => ({ op: "add", kind: "chain", ...ref, chain, ...(base && { base }) })),
    ...all.flatMap(([chain, { rules = [] }]) =>
      rules.map((exprs): Op => ({ op: "add", kind: "rule", ...ref, chain, exprs })),
    ),
  ];
}

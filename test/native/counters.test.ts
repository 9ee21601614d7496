/** Elements with counters: written with what they begin at, read one by one and in a dump, and told of when they go. */
import { expect, test } from "vitest";
import { DataTypeId, SetFlag } from "../../src/kernel/constants.js";
import type { ElementBatch, SetInfo } from "../../src/kernel/types.js";
import { addTable, dropTable, ip, useLab } from "./lab.js";

const lab = useLab();
const table = ip("counters");
const map: SetInfo = {
  set: "map",
  flags: SetFlag.map,
  keyType: DataTypeId.mark,
  keyLen: 4,
  dataType: DataTypeId.mark,
  dataLen: 4,
  exprs: [{ type: "counter" }],
};

interface Counted {
  readonly key: number;
  readonly data: number;
  readonly packets: bigint;
  readonly bytes: bigint;
}

function batch(...elements: readonly Counted[]): ElementBatch {
  const bytes = Buffer.alloc(elements.length * 24);
  elements.forEach(({ key, data, packets, bytes: octets }, i) => {
    bytes.writeUInt32LE(key, i * 24);
    bytes.writeUInt32LE(data, i * 24 + 4);
    bytes.writeBigUInt64LE(packets, i * 24 + 8);
    bytes.writeBigUInt64LE(octets, i * 24 + 16);
  });
  return { count: elements.length, keyLen: 4, dataLen: 4, counters: true, bytes };
}

function read({ count, dataLen, bytes }: ElementBatch): Counted[] {
  const buffer = Buffer.from(bytes);
  const stride = 20 + dataLen;
  return Array.from({ length: count }, (_, i) => ({
    key: buffer.readUInt32LE(i * stride),
    data: dataLen === 0 ? 0 : buffer.readUInt32LE(i * stride + 4),
    packets: buffer.readBigUInt64LE(i * stride + 4 + dataLen),
    bytes: buffer.readBigUInt64LE(i * stride + 12 + dataLen),
  })).sort((a, b) => a.key - b.key);
}

const one: Counted = { key: 1, data: 10, packets: 0n, bytes: 0n };
const two: Counted = { key: 2, data: 20, packets: 7n, bytes: 420n };
/** More than 32 bits of each. */
const many: Counted = { key: 3, data: 30, packets: 2n ** 40n + 1n, bytes: 2n ** 50n + 3n };
const keys = (...of: readonly number[]): Uint8Array => new Uint8Array(new Uint32Array(of).buffer);

test("elements begin where they are told to; a dump and a look at single ones tell so", async () => {
  const { kernel } = lab();
  await kernel.commit([
    addTable(table),
    { op: "add", kind: "set", ...table, ...map },
    { op: "add", kind: "elements", ...table, set: "map", elements: batch(one, two, many) },
  ]);
  expect((await kernel.sets(table))[0]?.exprs).toMatchObject([{ type: "counter" }]);
  expect(read(await kernel.elements(table, map))).toEqual([one, two, many]);
  expect(read(kernel.elementsByKey(table, map, keys(3, 2)))).toEqual([two, many]);
  expect(kernel.elementsByKey(table, map, keys(4)).count).toBe(0);
});

test("with echo, the commit tells what the deleted elements had counted, though others take their place in it", async () => {
  const { kernel } = lab();
  const gone: ElementBatch = { count: 2, keyLen: 4, dataLen: 0, bytes: keys(2, 3) };
  const result = await kernel.commit([
    { op: "delete", kind: "elements", ...table, set: "map", elements: gone, echo: true },
    { op: "add", kind: "elements", ...table, set: "map", elements: batch({ ...two, data: 21 }) },
  ]);
  expect(result.echoes?.map(({ op, elements }) => [op, read(elements)])).toEqual([
    [
      0,
      [
        { ...two, data: 0 },
        { ...many, data: 0 },
      ],
    ],
  ]);
  expect(read(await kernel.elements(table, map))).toEqual([one, { ...two, data: 21 }]);
  await kernel.commit([dropTable(table)]);
});

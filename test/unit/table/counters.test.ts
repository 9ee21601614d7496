/** Sets whose elements count: counters survive replacements, repairs and overlapping readings. */
import { beforeEach, expect, test } from "vitest";
import type { ElementBatch } from "../../../src/nft/kernel/kernel.js";
import { TrackedElements } from "../../../src/nft/elements/tracked-elements.js";
import type { SetSpec } from "../../../src/nft/engine-exports.js";

let held: Map<number, { readonly data: number; readonly packets: number }>;
let elements: TrackedElements;
const spec: SetSpec = {
  set: "counted",
  key: ["mark"],
  data: ["mark"],
  counters: {
    carries: (before, after) => number(before) < 100 && number(after) < 100,
  },
};

beforeEach(() => {
  held = new Map();
  elements = new TrackedElements(spec);
});

const readCounters = (): Promise<void> => elements.readCounters(() => Promise.resolve(dump()));

const bytes = (value: number): Uint8Array => new Uint8Array(new Uint32Array([value]).buffer);
const number = (of: Uint8Array): number => new Uint32Array(of.slice().buffer)[0];

function dump(): ElementBatch {
  const words = new Uint32Array([...held].flatMap(([key, { data, packets }]) => [key, data, packets, 0, 0, 0]));
  return { count: held.size, keyLen: 4, dataLen: 4, counters: true, bytes: new Uint8Array(words.buffer) };
}

/** Writes the desired state. */
async function write(during: () => Promise<void> = async () => undefined): Promise<void> {
  elements.packing.take(false);
  const change = await elements.packing.pack();
  await during();
  const added = new Uint32Array(change.adds?.bytes.slice().buffer ?? new ArrayBuffer(0));
  for (const index of change.carry ?? []) added[index * 6 + 2] = held.get(added[index * 6])?.packets ?? 0;
  for (const key of new Uint32Array(change.deletes?.bytes.slice().buffer ?? new ArrayBuffer(0))) held.delete(key);
  for (let at = 0; at < added.length; at += 6) held.set(added[at], { data: added[at + 1], packets: added[at + 2] });
  await elements.packing.settle(change, 0);
}

function count(key: number, packets: number): void {
  const element = held.get(key);
  if (element !== undefined) held.set(key, { ...element, packets: element.packets + packets });
}

test("a replaced element keeps counting", async () => {
  elements.put(bytes(1), bytes(10));
  await write();
  count(1, 5);
  elements.put(bytes(1), bytes(11));
  await write();
  expect(held.get(1)).toEqual({ data: 11, packets: 5 });
  count(1, 2);
  await readCounters();
  expect(elements.count(bytes(1))).toBe(7);
});

test("an element that starts to count something else starts at 0", async () => {
  elements.put(bytes(1), bytes(10));
  await write();
  count(1, 5);
  elements.put(bytes(1), bytes(100));
  await write();
  expect(held.get(1)).toEqual({ data: 100, packets: 0 });
  expect(elements.count(bytes(1))).toBe(0);
});

test("a dump during the replacement of an element does not restore what the old one had counted", async () => {
  elements.put(bytes(1), bytes(10));
  await write();
  count(1, 5);
  elements.put(bytes(1), bytes(100));
  // The dump is older than the transaction.
  await write(readCounters);
  expect(elements.count(bytes(1))).toBe(0);
});

test("a dump during the replacement of an element does not lose what the new one has counted", async () => {
  elements.put(bytes(1), bytes(10));
  await write();
  count(1, 5);
  await readCounters();
  count(1, 2);
  elements.put(bytes(1), bytes(11));
  await write(readCounters);
  expect(elements.count(bytes(1))).toBe(7);
  expect(held.get(1)).toEqual({ data: 11, packets: 7 });
});

test("elements that another process deletes are restored with the counters that were read last", async () => {
  elements.put(bytes(1), bytes(10));
  await write();
  count(1, 5);
  await readCounters();
  count(1, 4);
  held.clear();
  await elements.load(dump());
  await write();
  expect(held.get(1)).toEqual({ data: 10, packets: 5 });
});

test("a removed element is forgotten: another one with its key starts at 0", async () => {
  elements.put(bytes(1), bytes(10));
  await write();
  count(1, 5);
  await readCounters();
  elements.delete(bytes(1));
  await write();
  elements.put(bytes(1), bytes(10));
  await write();
  expect(held.get(1)).toEqual({ data: 10, packets: 0 });
});

import { expect } from "vitest";
import { SetFlag } from "../../../src/nft/kernel/constants.js";
import type { Kernel, Op, SetInfo } from "../../../src/nft/kernel/kernel.js";
import {
  addressMap,
  addressSet,
  goto,
  ip,
  newChain,
  newElements,
  newSet,
  newTable,
  noElements,
  T,
  unpack,
  verdictMap,
  type Element,
} from "../../support/operations.ts";
import { runCases, type Case, type Current } from "../cases.js";

const table = newTable();
const S = addressSet("s", { flags: SetFlag.interval });
const M = addressMap("m", { flags: SetFlag.interval | SetFlag.map });
const V = verdictMap("v", { flags: SetFlag.interval | SetFlag.map });
const END = 1;
/** From the first address up to, but not including, the second. */
const range = (from: string, to: string, data?: Element["data"]): Element[] => [
  { key: from, flags: 0, data },
  { key: to, flags: END },
];
const ten = newElements("s", range("10.0.0.0", "11.0.0.0"));
const twenty = newElements("s", range("20.0.0.0", "21.0.0.0"));
const given = [table, newSet(S), ten];

async function rows(kernel: Kernel, set: SetInfo): Promise<Record<string, unknown>[]> {
  return unpack(await kernel.elements(T, set));
}

export function intervals(current: Current): void {
  runCases(current, [...single, ...concatenated]);
}

const single: Case[] = [
  {
    title: "start and end",
    given: given.slice(0, 2),
    when: [ten],
    then: async ({ kernel }) =>
      expect(await rows(kernel, S)).toEqual([{ key: "0a000000" }, { key: "0b000000", end: true }]),
  },
  {
    title: "neighbours share an end",
    given,
    when: [newElements("s", range("11.0.0.0", "12.0.0.0"))],
    then: async ({ kernel }) =>
      expect(await rows(kernel, S)).toEqual([
        { key: "0a000000" },
        { key: "0b000000", end: true },
        { key: "0b000000" },
        { key: "0c000000", end: true },
      ]),
  },
  {
    title: "dumped from the highest to the lowest",
    given,
    when: [newElements("s", range("1.0.0.0", "2.0.0.0")), newElements("s", range("20.0.0.0", "21.0.0.0"))],
    then: async ({ kernel }) => {
      const { bytes, count } = await kernel.elements(T, S);
      expect(count).toBe(6);
      expect([0, 1, 2, 3, 4, 5].map((i) => bytes[i * 8])).toEqual([21, 20, 11, 10, 2, 1]);
    },
  },
  {
    title: "a map of ranges",
    given: [table, newSet(M)],
    when: [
      newElements("m", [...range("10.0.0.0", "11.0.0.0", "1.1.1.1"), ...range("12.0.0.0", "13.0.0.0", "2.2.2.2")]),
    ],
    then: async ({ kernel }) =>
      expect(await rows(kernel, M)).toEqual([
        { key: "0a000000", data: "01010101" },
        { key: "0b000000", end: true },
        { key: "0c000000", data: "02020202" },
        { key: "0d000000", end: true },
      ]),
  },
  {
    title: "a verdict map of ranges",
    given: [table, newChain("a"), newSet(V)],
    when: [newElements("v", range("10.0.0.0", "11.0.0.0", goto("a")))],
    then: async ({ kernel }) =>
      expect(await rows(kernel, V)).toEqual([
        { key: "0a000000", data: goto("a") },
        { key: "0b000000", end: true },
      ]),
  },
  { title: "the same range twice", given, when: [ten] },
  {
    title: "create of the same range",
    given,
    when: [newElements("s", range("10.0.0.0", "11.0.0.0"), "create")],
    faults: [{ op: 0, errno: "EEXIST", element: 0 }],
  },
  {
    title: "a range inside another",
    given,
    when: [newElements("s", range("10.1.0.0", "10.2.0.0"))],
    faults: [{ op: 0, errno: "EEXIST", element: 0 }],
  },
  {
    title: "a range that begins inside another",
    given,
    when: [newElements("s", range("10.1.0.0", "12.0.0.0"))],
    faults: [{ op: 0, errno: "EEXIST", element: 0 }],
  },
  {
    title: "a range that ends inside another",
    given,
    when: [newElements("s", range("9.0.0.0", "10.1.0.0"))],
    faults: [{ op: 0, errno: "EEXIST", element: 1 }],
  },
  {
    title: "an end in a set without ranges",
    realOnly: true,
    given: [table, newSet(addressSet("s"))],
    when: [newElements("s", [{ key: "1.1.1.1", flags: END }])],
    faults: [{ op: 0, errno: "EINVAL", element: 0 }],
  },
  {
    title: "delete of a range",
    given,
    when: [noElements("s", range("10.0.0.0", "11.0.0.0"))],
    then: async ({ kernel }) => expect(await rows(kernel, S)).toEqual([]),
  },
  {
    title: "delete of a missing half of a range",
    given,
    when: [noElements("s", range("10.0.0.0", "10.5.0.0"))],
    faults: [{ op: 0, errno: "ENOENT", element: 1 }],
  },
  {
    title: "delete of several ranges, each start before its end",
    given: [...given, twenty],
    when: [noElements("s", [...range("20.0.0.0", "21.0.0.0"), ...range("10.0.0.0", "11.0.0.0")])],
    then: async ({ kernel }) => expect(await rows(kernel, S)).toEqual([]),
  },
  {
    // In the order of a dump: since Linux 6.18's nft_set_rbtree, an end must follow its start.
    title: "delete of several ranges, the ends before the starts",
    given: [...given, twenty],
    when: [
      noElements("s", [...range("20.0.0.0", "21.0.0.0").toReversed(), ...range("10.0.0.0", "11.0.0.0").toReversed()]),
    ],
    faults: [{ op: 0, errno: "ENOENT", element: 2 }],
    before: { fact: "endsFollowStarts", then: async ({ kernel }) => expect(await rows(kernel, S)).toEqual([]) },
  },
  {
    // nft_set_rbtree remembers the named start until an existing end closes it; a new end does not.
    title: "the end of another range, after a start that exists",
    given,
    when: [
      newElements("s", [
        { key: "10.0.0.0", flags: 0 },
        { key: "9.0.0.0", flags: END },
        { key: "9.0.0.0", flags: END },
      ]),
    ],
    faults: [{ op: 0, errno: "EEXIST", element: 2 }],
    before: {
      fact: "endsFollowStarts",
      then: async ({ kernel }) =>
        expect((await rows(kernel, S)).map(({ key }) => key)).toEqual(["09000000", "0a000000", "0b000000"]),
    },
  },
  {
    title: "delete and add of overlapping ranges",
    given,
    when: [noElements("s", range("10.0.0.0", "11.0.0.0")), newElements("s", range("10.1.0.0", "10.2.0.0"))],
    then: async ({ kernel }) => expect((await rows(kernel, S)).map(({ key }) => key)).toEqual(["0a010000", "0a020000"]),
  },
  {
    title: "a set of size n holds n ranges",
    given: [table, newSet(addressSet("s", { flags: SetFlag.interval, size: 2 })), ten],
    when: [twenty, newElements("s", range("30.0.0.0", "31.0.0.0"))],
    faults: [{ op: 1, errno: "ENFILE", element: 0 }],
    before: {
      fact: "sizeCountsRanges",
      faults: [
        { op: 0, errno: "ENFILE", element: 0 },
        { op: 1, errno: "ENFILE", element: 0 },
      ],
    },
  },
];

const P: SetInfo = addressSet("p", {
  flags: SetFlag.interval | SetFlag.concat,
  keyLen: 8,
  keyType: (7 << 6) | 13,
  fieldLens: [4, 2],
});
/** address . port, padded */
const point = (address: string, port: number): Uint8Array => Uint8Array.of(...ip(address), port >> 8, port & 255, 0, 0);
const box = (from: [string, number], to: [string, number]): Element => ({ key: point(...from), keyEnd: point(...to) });
const boxes = (...elements: Element[]): Op => newElements("p", elements);
const noBoxes = (...elements: Element[]): Op => noElements("p", elements);
const first = box(["10.0.0.0", 80], ["10.0.0.255", 90]);
const givenBox = [table, newSet(P), boxes(first)];

const concatenated: Case[] = [
  {
    title: "a range of each field",
    given: givenBox.slice(0, 2),
    when: [boxes(first)],
    then: async ({ kernel }) =>
      expect(await rows(kernel, P)).toEqual([{ key: "0a00000000500000", keyEnd: "0a0000ff005a0000" }]),
  },
  { title: "the same ranges twice", given: givenBox, when: [boxes(first)] },
  {
    title: "ranges that begin inside others",
    given: givenBox,
    when: [boxes(box(["10.0.0.7", 85], ["10.0.1.0", 99]))],
    faults: [{ op: 0, errno: "EEXIST", element: 0 }],
  },
  {
    title: "ranges next to others in one field",
    given: givenBox,
    when: [boxes(box(["10.0.0.0", 91], ["10.0.0.255", 95]))],
  },
  {
    title: "delete of ranges",
    given: givenBox,
    when: [noBoxes(first)],
    then: async ({ kernel }) => expect(await rows(kernel, P)).toEqual([]),
  },
  {
    title: "delete finds ranges by a point inside them",
    given: givenBox,
    when: [noBoxes(box(["10.0.0.7", 85], ["10.0.0.254", 90]))],
    then: async ({ kernel }) => expect(await rows(kernel, P)).toEqual([]),
  },
  {
    title: "delete of a point outside every range",
    given: givenBox,
    when: [noBoxes(box(["10.0.0.7", 95], ["10.0.0.7", 95]))],
    faults: [{ op: 0, errno: "ENOENT", element: 0 }],
  },
  {
    title: "ranges that contain others are accepted",
    given: givenBox,
    when: [boxes(box(["9.0.0.0", 1], ["11.0.0.0", 99]))],
    then: async ({ kernel }) => expect(await rows(kernel, P)).toHaveLength(2),
  },
  {
    title: "a range that ends before it begins",
    given: givenBox,
    when: [boxes(box(["20.0.0.0", 9], ["20.0.0.0", 8]))],
    faults: [{ op: 0, errno: "EINVAL", element: 0 }],
  },
];

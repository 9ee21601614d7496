import { describe, expect, it } from "vitest";
import { EndpointList, NO_ENDPOINTS } from "../../../../src/objects/endpoint-list.js";
import type { IpFamily } from "../../../../src/base/ip.js";
import { arrange, assignIndices } from "../../../../src/model/balance/indices.js";

const ADDRESS = { ip: "10.0.0.", ip6: "fd00::" } as const;
const listOf = (family: IpFamily, numbers: readonly number[]): EndpointList =>
  EndpointList.of(
    family,
    numbers.map((n) => ({ address: `${ADDRESS[family]}${n}`, port: 80 + (n % 2), local: false })),
  );
const list = (...numbers: number[]): EndpointList => listOf("ip", numbers);
const ids = (endpoints: EndpointList): string[] => [...endpoints].map(({ address, port }) => `${address} ${port}`);

describe.each(["ip", "ip6"] as const)("assignIndices of family %s", (family) => {
  const cases: [name: string, before: number[], wanted: number[], after: number[]][] = [
    ["keeps the given order at first", [], [3, 1, 2], [3, 1, 2]],
    ["keeps everything when nothing changes, in whatever order it comes", [1, 2, 3], [3, 1, 2], [1, 2, 3]],
    ["replaces one in its place", [1, 2, 3], [3, 4, 1], [1, 4, 3]],
    ["grows at the end", [1, 2], [2, 5, 1], [1, 2, 5]],
    ["moves the last into the hole when it shrinks", [1, 2, 3, 4], [1, 4, 3], [1, 4, 3]],
    ["moves nothing when the last goes", [1, 2, 3], [2, 1], [1, 2]],
    ["fills several holes with those from beyond the end", [1, 2, 3, 4, 5], [3, 4, 5], [4, 5, 3]],
    ["empties", [1, 2], [], []],
    ["starts over when all are new", [1, 2], [3, 4, 5], [3, 4, 5]],
  ];
  it.each(cases)("%s", (_name, before, wanted, after) => {
    expect(ids(assignIndices(listOf(family, before), listOf(family, wanted)))).toEqual(ids(listOf(family, after)));
  });
});

describe("arrange", () => {
  it.each([
    ["fills places where nothing known stood", [-1, 1, -1], [1, 2, 3]],
    ["keeps each endpoint once though it stood twice", [2, 2, 0], [3, 2, 1]],
    ["keeps in its place what stood elsewhere too", [1, 1], [1, 2, 3]],
    ["knows nothing of what stood beyond the end", [1, 2, 0, 0, -1], [2, 3, 1]],
  ])("%s", (_name, stood, after) => {
    expect(ids(arrange(stood, list(1, 2, 3)))).toEqual(ids(list(...after)));
  });

  it("never loses or duplicates an endpoint, and keeps those that can stay", () => {
    let before = NO_ENDPOINTS;
    for (let round = 0; round < 200; round++) {
      const wanted = list(
        ...Array.from({ length: 12 }, (_, n) => n).filter((n) => (round * 7 + n * n * (round % 5)) % 3 !== 0),
      );
      const after = assignIndices(before, wanted);
      expect(ids(after).sort()).toEqual(ids(wanted).sort());
      const wantedIds = new Set(ids(wanted));
      ids(before).forEach((old, index) => {
        if (index < after.length && wantedIds.has(old)) expect(ids(after)[index]).toBe(old);
      });
      before = after;
    }
  });
});

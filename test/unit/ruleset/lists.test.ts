import { describe, expect, it } from "vitest";
import type { Endpoint } from "../../../src/model/types.js";
import { assignIndices, endpointId } from "../../../src/ruleset/lists.js";

const endpoint = (n: number): Endpoint => ({ address: `10.0.0.${n}`, port: 80, local: false });
const list = (...numbers: number[]): Endpoint[] => numbers.map(endpoint);
const ids = (endpoints: readonly Endpoint[]): string[] => endpoints.map(endpointId);

describe("assignIndices", () => {
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
    expect(ids(assignIndices(list(...before), list(...wanted)))).toEqual(ids(list(...after)));
  });

  it("fills places where nothing known stood", () => {
    expect(ids(assignIndices([undefined, endpoint(2), undefined], list(1, 2, 3)))).toEqual(ids(list(1, 2, 3)));
  });

  it("never loses or doubles an endpoint, and keeps those that can stay", () => {
    let before: readonly Endpoint[] = [];
    for (let round = 0; round < 200; round++) {
      const wanted = list(
        ...Array.from({ length: 12 }, (_, n) => n).filter((n) => (round * 7 + n * n * (round % 5)) % 3 !== 0),
      );
      const after = assignIndices(before, wanted);
      expect(ids(after).sort()).toEqual(ids(wanted).sort());
      const wantedIds = new Set(ids(wanted));
      before.forEach((old, index) => {
        if (index < after.length && wantedIds.has(endpointId(old))) expect(after[index]).toEqual(old);
      });
      before = after;
    }
  });
});

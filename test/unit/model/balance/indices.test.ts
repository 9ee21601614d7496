import { describe, expect, it } from "vitest";
import { EndpointList, NO_ENDPOINTS } from "../../../../src/objects/endpoint-list.js";
import type { IpFamily } from "../../../../src/base/ip.js";
import { runAtOnce } from "../../../../src/base/time-slice.js";
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
    ["keeps everything if only the order of the input changes", [1, 2, 3], [3, 1, 2], [1, 2, 3]],
    ["replaces an endpoint in its place", [1, 2, 3], [3, 4, 1], [1, 4, 3]],
    ["adds new endpoints at the end", [1, 2], [2, 5, 1], [1, 2, 5]],
    ["moves the last endpoint into the gap when it shrinks", [1, 2, 3, 4], [1, 4, 3], [1, 4, 3]],
    ["moves nothing when the last endpoint is removed", [1, 2, 3], [2, 1], [1, 2]],
    ["fills several gaps with endpoints from beyond the end", [1, 2, 3, 4, 5], [3, 4, 5], [4, 5, 3]],
    ["empties", [1, 2], [], []],
    ["starts again when all endpoints are new", [1, 2], [3, 4, 5], [3, 4, 5]],
  ];
  it.each(cases)("%s", (_name, before, wanted, after) => {
    expect(ids(runAtOnce(assignIndices(listOf(family, before), listOf(family, wanted))))).toEqual(
      ids(listOf(family, after)),
    );
  });
});

describe("arrange", () => {
  it.each([
    ["fills places that held no known endpoint", [-1, 1, -1], [1, 2, 3]],
    ["keeps each endpoint once, even if it had two places", [2, 2, 0], [3, 2, 1]],
    ["keeps an endpoint in its place, even if it had another place, too", [1, 1], [1, 2, 3]],
    ["ignores endpoints beyond the end", [1, 2, 0, 0, -1], [2, 3, 1]],
  ])("%s", (_name, stood, after) => {
    expect(ids(runAtOnce(arrange(stood, list(1, 2, 3))))).toEqual(ids(list(...after)));
  });

  it("never loses or duplicates an endpoint, and keeps those that can stay", () => {
    let before = NO_ENDPOINTS;
    for (let round = 0; round < 200; round++) {
      const wanted = list(
        ...Array.from({ length: 12 }, (_, n) => n).filter((n) => (round * 7 + n * n * (round % 5)) % 3 !== 0),
      );
      const after = runAtOnce(assignIndices(before, wanted));
      expect(ids(after).sort()).toEqual(ids(wanted).sort());
      const wantedIds = new Set(ids(wanted));
      ids(before).forEach((old, index) => {
        if (index < after.length && wantedIds.has(old)) expect(ids(after)[index]).toBe(old);
      });
      before = after;
    }
  });
});

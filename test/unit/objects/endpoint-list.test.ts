import { describe, expect, it } from "vitest";
import { type Endpoint, EndpointList, NO_ENDPOINTS, readAddress } from "../../../src/objects/endpoint-list.js";
import type { IpFamily } from "../../../src/base/ip.js";

const OF: Readonly<Record<IpFamily, readonly Endpoint[]>> = {
  ip: [
    { address: "10.1.0.1", port: 8080, local: false },
    { address: "200.255.0.128", port: 8080, local: true },
    { address: "10.1.0.1", port: 65_535, local: false },
  ],
  ip6: [
    { address: "fd00::1", port: 8080, local: false },
    { address: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", port: 8080, local: true },
    { address: "fd00::1", port: 65_535, local: false },
  ],
};

describe.each(["ip", "ip6"] as const)("EndpointList of family %s", (family) => {
  const objects = OF[family];
  const list = EndpointList.of(family, objects);

  it("returns its input", () => {
    expect([...list]).toEqual(objects);
  });

  it("picks and filters, and returns itself if all endpoints pass", () => {
    expect([...list.pick([2, 0])]).toEqual([objects[2], objects[0]]);
    expect([...list.filter((i) => list.isLocal(i))]).toEqual([objects[1]]);
    expect(list.filter(() => true)).toBe(list);
  });

  it("changes the port of all endpoints", () => {
    expect([...list.onPort(9)]).toEqual(objects.map((endpoint) => ({ ...endpoint, port: 9 })));
    const moved = list.onPort(9);
    expect(moved.onPort(9)).toBe(moved);
    expect([...moved.pick([1])]).toEqual([{ ...objects[1], port: 9 }]);
  });

  it("distinguishes addresses and ports", () => {
    expect(new Set([0, 1, 2].map((i) => list.id(i))).size).toBe(3);
    expect(list.addressId(0)).toBe(list.addressId(2));
    expect(list.addressId(0)).not.toBe(list.addressId(1));
    expect([list.isSame(0, list, 0), list.isSame(0, list, 2), list.isSame(0, list, 1)]).toEqual([true, false, false]);
  });

  it("equals a list with the same addresses, ports and places", () => {
    expect(list.equals(EndpointList.of(family, objects))).toBe(true);
    for (const change of [{ port: 1 }, { local: true }, { address: objects[1].address }]) {
      expect(list.equals(EndpointList.of(family, [{ ...objects[0], ...change }, objects[1], objects[2]]))).toBe(false);
    }
    expect(list.equals(list.pick([0, 1]))).toBe(false);
    expect(list.equals(NO_ENDPOINTS)).toBe(false);
  });

  it("refuses an address of the other family, and writes no part of it", () => {
    const other = family === "ip" ? "ip6" : "ip";
    const words = [1, 2, 3, 4];
    expect(readAddress(OF[other][0].address, family, words, 0)).toBe(false);
    expect(readAddress("nonsense", family, words, 0)).toBe(false);
    expect(words).toEqual([1, 2, 3, 4]);
    expect(() => EndpointList.of(family, OF[other])).toThrow(RangeError);
  });
});

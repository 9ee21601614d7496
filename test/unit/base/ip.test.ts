import { describe, expect, test } from "vitest";
import {
  familyOf,
  formatAddress,
  mergePrefixes,
  packAddress,
  parseAddress,
  parseCIDR,
  prefixContains,
  specialKindOf,
} from "../../../src/base/ip.js";

describe("parseAddress", () => {
  test.each([
    ["10.1.2.3", "10.1.2.3"],
    ["0.0.0.0", "0.0.0.0"],
    ["255.255.255.255", "255.255.255.255"],
    // Leading zeros are decimal, as in k8s.io/utils/net ParseIPSloppy.
    ["010.1.2.3", "10.1.2.3"],
    ["010.001.000.09", "10.1.0.9"],
    ["192.168.0000001.1", "192.168.1.1"],
    ["::", "::"],
    ["::1", "::1"],
    ["1::", "1::"],
    ["FD00:0:0:1::0A", "fd00:0:0:1::a"],
    ["fd00:10:0:0:0:0:0:1", "fd00:10::1"],
    ["1:0:0:2:0:0:0:3", "1:0:0:2::3"],
    ["1:0:0:2:3:0:0:4", "1::2:3:0:0:4"],
    ["1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"],
    ["1:0:3:4:5:6:7:8", "1:0:3:4:5:6:7:8"],
    ["1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"],
    ["64:ff9b::10.0.0.1", "64:ff9b::a00:1"],
    // Go's net.ParseIP reads a mapped address as the IPv4 address.
    ["::ffff:10.0.0.1", "10.0.0.1"],
    ["::ffff:0a00:0001", "10.0.0.1"],
    ["::FFFF:010.0.0.1", "10.0.0.1"],
  ])("%s is %s", (text, canonical) => {
    expect(parseAddress(text)).toBe(canonical);
    expect(familyOf(canonical)).toBe(canonical.includes(":") ? "ip6" : "ip");
    expect(parseAddress(canonical)).toBe(canonical);
  });

  test.each([
    "",
    "10.0.0",
    "10.0.0.",
    "10.0.0.0.1",
    ".10.0.0.1",
    "10..0.1",
    "256.0.0.1",
    "10.0.0.1 ",
    " 10.0.0.1",
    "10.0.0.0/8",
    "0x0a.0.0.1",
    "a.b.c.d",
    "1e1.0.0.1",
    "-1.0.0.1",
    ":",
    ":::",
    "1:2",
    "1:2:3:4:5:6:7:8:9",
    "1::2::3",
    "12345::",
    "g::1",
    "fe80::1%eth0",
    "1:2:3:4:5:6:7:",
    ":1:2:3:4:5:6:7",
    "1:2:3:4:5:6:7:8::",
    "::1.2.3",
    "::1.2.3.256",
    "1.2.3.4::",
    "1:2:3:4:5:6:7:1.2.3.4",
    "1:1.2.3.4:2::",
    "host.example",
  ])("%j is not an address", (text) => {
    expect(parseAddress(text)).toBeUndefined();
    expect(parseCIDR(`${text}/1`)).toBeUndefined();
  });
});

describe("packAddress", () => {
  test("writes network byte order at the offset and touches nothing else", () => {
    const into = new Uint8Array(8).fill(0xee);
    expect(packAddress("10.1.2.255", into, 2)).toBe(4);
    expect([...into]).toEqual([0xee, 0xee, 10, 1, 2, 255, 0xee, 0xee]);
  });

  test("writes sixteen bytes of an IPv6 address, four of a mapped one", () => {
    const into = new Uint8Array(18).fill(0xee);
    expect(packAddress("fd00::1:2", into, 1)).toBe(16);
    expect(Buffer.from(into).toString("hex")).toBe("eefd000000000000000000000000010002ee");
    expect(packAddress("::ffff:1.2.3.4", into, 0)).toBe(4);
    expect([...into.subarray(0, 4)]).toEqual([1, 2, 3, 4]);
  });

  test("a full IPv6 address does not depend on the earlier bytes", () => {
    const into = new Uint8Array(16).fill(0xff);
    packAddress("1::", into, 0);
    expect(formatAddress(into)).toBe("1::");
  });

  test("returns 0 for invalid text", () => {
    expect(packAddress("10.0.0.256", new Uint8Array(16), 0)).toBe(0);
    expect(packAddress("nonsense", new Uint8Array(16), 0)).toBe(0);
  });
});

function merge(...texts: string[]): string[] {
  return mergePrefixes(texts.flatMap((text) => parseCIDR(text) ?? []));
}

describe("parseCIDR", () => {
  test.each([
    ["10.0.0.0/8", "10.0.0.0/8"],
    ["10.1.2.3/8", "10.0.0.0/8"],
    ["10.1.2.3/32", "10.1.2.3/32"],
    ["10.255.0.0/9", "10.128.0.0/9"],
    ["1.2.3.4/0", "0.0.0.0/0"],
    ["010.0.0.0/08", "10.0.0.0/8"],
    ["fd00:1:2:3::/48", "fd00:1:2::/48"],
    ["::/0", "::/0"],
    ["fd00::1/128", "fd00::1/128"],
    ["::ffff:10.0.0.0/104", "10.0.0.0/8"],
  ])("%s is %s", (text, canonical) => {
    expect(parseCIDR(text)?.text).toBe(canonical);
  });

  test.each([
    "10.0.0.0",
    "10.0.0.0/33",
    "10.0.0.0/-1",
    "10.0.0.0/",
    "/8",
    "10.0.0.0/8/8",
    "::/129",
    "::ffff:1.2.3.4/8",
  ])("%j is not a CIDR", (text) => {
    expect(parseCIDR(text)).toBeUndefined();
  });

  test("it contains only addresses of its own family", () => {
    const prefix = parseCIDR("10.96.0.0/12");
    expect(prefix && prefixContains(prefix, "10.111.255.255")).toBe(true);
    expect(prefix && prefixContains(prefix, "10.112.0.0")).toBe(false);
    expect(prefix && prefixContains(prefix, "::1")).toBe(false);
  });

  test("merging removes overlaps", () => {
    expect(merge("10.1.0.0/16", "10.0.0.0/8", "10.2.3.0/24", "9.0.0.0/8", "10.0.0.0/8", "11.0.0.0/9")).toEqual([
      "9.0.0.0/8",
      "10.0.0.0/8",
      "11.0.0.0/9",
    ]);
    expect(merge("fd00:2::/32", "fd00::/16", "fc00::/7")).toEqual(["fc00::/7"]);
  });
});

describe("specialKindOf", () => {
  test.each([
    ["127.0.0.1", "a loopback"],
    ["127.255.255.255", "a loopback"],
    ["::ffff:127.0.0.1", "a loopback"],
    ["::1", "a loopback"],
    ["0.0.0.0", "an unspecified"],
    ["::", "an unspecified"],
    ["169.254.0.1", "a link-local"],
    ["fe80::1", "a link-local"],
    ["febf::1", "a link-local"],
    ["224.0.0.1", "a multicast"],
    ["239.255.255.255", "a multicast"],
    ["ff02::1", "a multicast"],
    ["255.255.255.255", "the broadcast"],
  ])("%s is %s address", (text, kind) => {
    expect(specialKindOf(text)).toBe(kind);
  });

  test.each([
    ...[
      "0.0.0.1",
      "1.0.0.0",
      "126.255.255.255",
      "128.0.0.1",
      "169.253.0.1",
      "223.255.255.255",
      "240.0.0.1",
      "255.255.255.254",
    ],
    ...["::2", "::1:0", "1::", "fec0::1", "fe7f::1", "fd00::1", "2001:db8::1", "no address"],
  ])("%s is not a special address", (text) => {
    expect(specialKindOf(text)).toBeUndefined();
  });
});

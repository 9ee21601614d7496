import { describe, expect, it } from "vitest";

import { TableFlag } from "../../../src/nft/kernel/constants.js";
import type { ElementBatch } from "../../../src/nft/kernel/kernel.js";
import { addressBytes } from "../../../src/base/ip.js";
import {
  addressText,
  mergeRanges,
  parseNetwork,
  prefixLength,
  type Range,
  rangeText,
} from "../../../src/nft/bytes/ip-ranges.js";
import { rangeElements, rangeOfKey, rangeRows } from "../../../src/nft/language/intervals.js";
import { editScript } from "../../../src/nft/sync/diff.js";
import {
  fitsSize,
  packedBytes,
  serves,
  setInfo,
  sizeFor,
  typeId,
  checkSetSpec,
} from "../../../src/nft/language/schema.js";
import { fateOf, type TableFate } from "../../../src/nft/sync/quirks.js";
import { commentData, commentOf, isName, isQuotable } from "../../../src/nft/bytes/names-and-comments.js";
import type { SetSpec } from "../../../src/nft/language/set-spec.js";

const merged = (...nets: string[]): string[] =>
  mergeRanges(nets.map((net) => parseNetwork(net)!)).map((range) => rangeText(range, nets[0].includes(":") ? 16 : 4));

describe("networks", () => {
  it("are parsed, masked, merged and printed", () => {
    expect(merged("10.0.0.0/9", "10.128.0.1/9", "192.168.1.1")).toEqual(["10.0.0.0/8", "192.168.1.1"]);
    expect(merged("10.0.0.0/8", "10.1.0.0/16")).toEqual(["10.0.0.0/8"]);
    expect(merged("255.255.255.255", "0.0.0.0")).toEqual(["0.0.0.0", "255.255.255.255"]);
    expect(merged("10.0.0.1", "10.0.0.2")).toEqual(["10.0.0.1-10.0.0.2"]);
    expect(merged("0.0.0.0/0")).toEqual(["0.0.0.0/0"]);
    expect(merged("fd00::/9", "fd80::/9", "::1")).toEqual(["::1", "fd00::/8"]);
  });
  it.each(["10.0.0.0/33", "10.0.0", "fd00::/129", "fe80::1%eth0", "10.0.0.0/", "010.0.0.1", "x", "", "10.0.0.0/-1"])(
    "%j is refused",
    (text) => {
      expect(parseNetwork(text)).toBeUndefined();
    },
  );
  it("round-trip as text", () => {
    for (const text of ["10.1.2.3", "fd00::1", "::ffff:1.2.3.4", "::"])
      expect([...addressBytes(addressText(addressBytes(text)!))!]).toEqual([...addressBytes(text)!]);
  });
  it("know which ranges are a prefix", () => {
    expect(prefixLength({ from: 0n, to: 255n }, 32)).toBe(24);
    expect(prefixLength({ from: 1n, to: 256n }, 32)).toBeUndefined();
    expect(prefixLength({ from: 0n, to: 2n }, 32)).toBeUndefined();
  });
});

describe("interval elements", () => {
  const hex = (records: Uint8Array[]): string[] => records.map((record) => Buffer.from(record).toString("hex"));
  const recordsOf = (ranges: readonly Range[]): Uint8Array[] => {
    const { count, bytes } = rangeElements(ranges, 4);
    expect(bytes).toHaveLength(count * 8);
    return Array.from({ length: count }, (_, i) => bytes.subarray(i * 8, (i + 1) * 8));
  };
  it("are start and exclusive end, without an end at the maximum", () => {
    expect(hex(recordsOf(mergeRanges([parseNetwork("10.0.0.0/8")!, parseNetwork("224.0.0.0/3")!])))).toEqual([
      "0a00000000000000",
      "0b00000001000000",
      "e000000000000000",
    ]);
    expect(hex(recordsOf(mergeRanges([parseNetwork("0.0.0.0/0")!])))).toEqual(["0000000000000000"]);
  });
  it("can be converted back to the ranges, in any order, and invalid ones are detected", () => {
    const ranges = mergeRanges(["10.0.0.0/8", "12.0.0.0/32", "255.0.0.0/8"].map((net) => parseNetwork(net)!));
    const records = recordsOf(ranges);
    const batch = (...list: Uint8Array[]): ElementBatch => ({
      count: list.length,
      keyLen: 4,
      dataLen: 0,
      flags: true,
      bytes: Buffer.concat(list),
    });
    const read = (...list: Uint8Array[]): { ranges: Range[]; complete: boolean } => {
      const { rows, complete } = rangeRows(batch(...list));
      const { count, bytes } = rows;
      return {
        ranges: Array.from({ length: count }, (_, i) => rangeOfKey(bytes.subarray(i * 12, i * 12 + 8))),
        complete,
      };
    };
    expect(read(...records.toReversed())).toEqual({ ranges, complete: true });
    const zeroEnd = Uint8Array.of(0, 0, 0, 0, 1, 0, 0, 0);
    expect(read(zeroEnd, ...records)).toEqual({ ranges, complete: true });
    expect(read(Uint8Array.of(10, 1, 0, 0, 0, 0, 0, 0), ...records).complete).toBe(false);
    expect(read(Uint8Array.of(9, 0, 0, 0, 1, 0, 0, 0), ...records).complete).toBe(false);
    expect(read(Uint8Array.of(0, 0, 0, 0, 2, 0, 0, 0), ...records).complete).toBe(true);
  });
});

describe("editScript", () => {
  const run = (from: string, to: string): string =>
    editScript([...from], [...to], (a, b) => a === b)
      .map((edit) =>
        edit.edit === "add" ? `+${to[edit.to]}` : edit.edit === "delete" ? `-${from[edit.from]}` : from[edit.from],
      )
      .join("");
  it("keeps as much as possible", () => {
    expect(run("abc", "abc")).toBe("abc");
    expect(run("abc", "abxc")).toBe("ab+xc");
    expect(run("abcd", "acd")).toBe("a-bcd");
    expect(run("", "ab")).toBe("+a+b");
    expect(run("ab", "")).toBe("-a-b");
    expect(run("abcde", "xbydz").replaceAll(/[-+]./g, "")).toBe("bd");
  });
  it("turns any list into any other", () => {
    const letters = "abcd";
    for (let seed = 0; seed < 500; seed++) {
      const word = (n: number): string =>
        Array.from({ length: n % 9 }, (_, i) => letters[(seed * 7 + i * (n + 3) + ((seed >> i) & 3)) % 4]).join("");
      const [from, to] = [word(seed), word(seed * 5 + 2)];
      const edits = editScript([...from], [...to], (a, b) => a === b);
      expect(
        edits
          .filter((edit) => edit.edit !== "delete")
          .map((edit) => (edit.edit === "add" ? to[edit.to] : from[edit.from]))
          .join(""),
      ).toBe(to);
      expect(
        edits
          .filter((edit) => edit.edit !== "add")
          .map((edit) => from[(edit as { from: number }).from])
          .join(""),
      ).toBe(from);
    }
  });
  it("replaces the middle of lists that are too long to compare", () => {
    const from = Array.from({ length: 1000 }, (_, i) => i);
    const to = from.map((n) => n + 1_000_000);
    const edits = editScript([-1, ...from, -2], [-1, ...to, -2], (a, b) => a === b);
    expect(edits.filter((edit) => edit.edit === "keep")).toHaveLength(2);
    expect(edits.filter((edit) => edit.edit === "add")).toHaveLength(1000);
    expect(edits.filter((edit) => edit.edit === "delete")).toHaveLength(1000);
  });
});

describe("names and comments", () => {
  it("have the limits of the kernel and nft", () => {
    for (const name of ["a".repeat(255), "firewall/x/tcp/p", "a.b", "_x-1"]) expect(isName(name), name).toBe(true);
    for (const name of ["a".repeat(256), "", "1a", "a b", "a{", 'a"', "-a", "ä"])
      expect(isName(name), name).toBe(false);
    expect(isQuotable("x".repeat(128), 128)).toBe(true);
    for (const comment of ["ü".repeat(65), 'a"b', "a\nb"]) expect(isQuotable(comment, 128), comment).toBe(false);
  });
  it("are written into userdata in nft's format", () => {
    expect([...(commentData("hi") ?? [])]).toEqual([0, 3, 0x68, 0x69, 0]);
    expect([...(commentData("hi", "set") ?? [])]).toEqual([7, 3, 0x68, 0x69, 0]);
    expect(commentOf(Uint8Array.of(1, 4, 1, 0, 0, 0, 7, 3, 0x68, 0x69, 0), "set")).toBe("hi");
    expect(commentOf(Uint8Array.of(0, 3, 0x68, 0x69, 0))).toBe("hi");
    expect(commentOf(Uint8Array.of(0, 200))).toBe("");
    expect(commentOf(Uint8Array.of(3))).toBeUndefined();
  });
});

describe("set specifications", () => {
  const endpoints: SetSpec = {
    set: "e",
    key: ["ipv4_addr", "inet_proto", "inet_service", "index"],
    data: ["ipv4_addr", "inet_service"],
    size: "auto",
  };
  it("have the kernel's widths and nft's type ids", () => {
    expect(packedBytes(endpoints.key)).toBe(16);
    expect(packedBytes(["inet_service"])).toBe(2);
    expect(packedBytes(["ipv6_addr", "inet_proto", "inet_service"])).toBe(24);
    expect(typeId(["ipv4_addr", "inet_service"])).toBe((7 << 6) | 13);
    expect(setInfo(endpoints, 1024)).toEqual({
      set: "e",
      flags: 8,
      keyType: (((((7 << 6) | 12) << 6) | 13) << 6) | 19,
      keyLen: 16,
      dataType: (7 << 6) | 13,
      dataLen: 8,
      size: 1024,
    });
    expect(setInfo({ set: "d", key: ["ipv4_addr"], dynamic: true, timeoutMs: 5000 }, undefined)).toEqual({
      set: "d",
      flags: 0x30,
      keyType: 7,
      keyLen: 4,
      timeout: 5000n,
    });
    expect(setInfo({ set: "v", key: ["inet_service"], data: "verdict" }, undefined).dataType).toBe(0xffffff00);
  });
  it("describe the requirements for the kernel's set", () => {
    const kernel = setInfo(endpoints, 4096);
    expect(serves(kernel, endpoints)).toBe(true);
    expect(serves({ ...kernel, flags: 0x18 }, endpoints)).toBe(false);
    expect(serves({ ...kernel, keyType: 1 }, endpoints)).toBe(false);
    expect(serves(kernel, { ...endpoints, comment: "x" })).toBe(false);
    expect(serves({ ...kernel, timeout: 5000n }, endpoints)).toBe(false);
    const dynamic: SetSpec = { set: "d", key: ["ipv4_addr"], dynamic: true, timeoutMs: 5000, comment: "x" };
    expect(serves({ ...setInfo(dynamic, undefined), timeout: 5003n }, dynamic)).toBe(true);
    expect(serves({ ...setInfo(dynamic, undefined), userdata: Uint8Array.of() }, dynamic)).toBe(false);
  });
  it("have a size: a number is a lower bound, and auto leaves room for twice as many", () => {
    expect(sizeFor(endpoints, 0)).toBe(1024);
    expect(sizeFor(endpoints, 513)).toBe(2048);
    expect(sizeFor({ ...endpoints, size: 77 }, 500)).toBe(77);
    expect(fitsSize(undefined, endpoints, 1e9)).toBe(true);
    expect(fitsSize(1024, endpoints, 1024)).toBe(true);
    expect(fitsSize(1024, endpoints, 1025)).toBe(false);
    expect(fitsSize(100, { ...endpoints, size: 77 }, 0)).toBe(true);
    expect(fitsSize(70, { ...endpoints, size: 77 }, 0)).toBe(false);
  });
  it("contradictory specifications are refused", () => {
    expect(() => checkSetSpec({ set: "x", key: Array.from({ length: 5 }, () => "ipv6_addr" as const) })).toThrow(
      /64 bytes/,
    );
    expect(() => checkSetSpec({ set: "x", key: ["ipv4_addr"], interval: true, dynamic: true })).toThrow(/interval/);
    expect(() => checkSetSpec({ set: "x", key: ["ct_state"], interval: true })).toThrow(/no flags/);
  });
});

describe("an existing table", () => {
  const { dormant, owner, persist } = TableFlag;
  const [US, THEM] = [7, 8];
  it.each<[string, number, number | undefined, whenOpen: TableFate, whenOwned: TableFate]>([
    ["plain", 0, undefined, "fits", "recreate"],
    ["asleep", dormant, undefined, "update", "recreate"],
    ["left by an owner", persist, undefined, "recreate", "update"],
    ["left by an owner, dormant", persist | dormant, undefined, "recreate", "update"],
    ["ours", owner | persist, US, "recreate", "fits"],
    ["ours, dormant", owner | persist | dormant, US, "recreate", "update"],
    ["ours, and deleted when we end", owner, US, "recreate", "recreate"],
    ["another program's", owner | persist, THEM, "theirs", "theirs"],
    ["another program's, and deleted when that ends", owner, THEM, "theirs", "theirs"],
  ])("%s", (_what, flags, port, whenOpen, whenOwned) => {
    const facts = { flags, owner: port };
    expect([fateOf(facts, false, US), fateOf(facts, true, US)]).toEqual([whenOpen, whenOwned]);
  });
});

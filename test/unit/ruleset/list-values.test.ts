import { describe, expect, it } from "vitest";
import { KeyPacker } from "../../../src/ruleset/key-packer.js";
import {
  bySource,
  ENDPOINT_NUMBERS,
  packList,
  shardOf,
  SHARDS,
  AFFINITY_NUMBERS,
  affinityList,
  unpackList,
} from "../../../src/ruleset/list-values.js";
import { setSpecs } from "../../../src/ruleset/element-sets.js";
import { printPacked } from "../../../src/nft/elements/print-key.js";

const text = (value: number): string => printPacked(["classid"], new Uint8Array(Uint32Array.of(value).buffer));

describe("a list value", () => {
  const kinds = ["cluster", "masq", "local"] as const;
  const drawn = ["affinity", ...kinds] as const;

  it("is read as it was packed, whatever the kind, the shard and the count, and is unique", () => {
    const seen = new Set<number>();
    for (const nodePort of [false, true]) {
      for (const kind of drawn) {
        for (const shard of nodePort ? [0] : Array.from({ length: SHARDS }, (_, i) => i)) {
          for (const count of [1, 2, 0xffff, 0x10000, 0x10001, 2 ** 23 - 1]) {
            const list = { kind, count, shard, nodePort };
            const value = packList(list);
            expect(unpackList(value)).toEqual(list);
            expect(seen.has(value)).toBe(false);
            seen.add(value);
          }
        }
      }
    }
    for (const nodePort of [false, true]) expect(seen.has(bySource(nodePort))).toBe(false);
    for (const kind of kinds) {
      for (const number of [0, 1, 0xffff, 0x10000, 0xfffff, 0x100000, AFFINITY_NUMBERS - 1]) {
        const value = affinityList(kind, number);
        expect((value & ENDPOINT_NUMBERS.mask) >>> 0).not.toBe(ENDPOINT_NUMBERS.value);
        expect(seen.has(value)).toBe(false);
        seen.add(value);
      }
    }
  });

  it("is printed as the comments of the maps explain", () => {
    const specs = setSpecs("ip", "off");
    expect(text(packList({ kind: "cluster", count: 3, shard: 5, nodePort: false }))).toBe("15:3");
    expect(specs.services.comment).toContain("15:3 = list 1, endpoints-5, 3 (hex) endpoints");
    expect(text(packList({ kind: "cluster", count: 3, shard: 0, nodePort: true }))).toBe("90:3");
    expect(specs.nodePorts.comment).toContain("90:3 = list 1 of a node port");
    expect(text(packList({ kind: "masq", count: 1000, shard: 15, nodePort: false }))).toBe("2f:3e8");
    expect([bySource(false), bySource(true)].map(text)).toEqual(["40:0", "c0:0"]);
    expect([affinityList("local", 0x12), affinityList("cluster", 0x2b36cde)].map(text)).toEqual(["70:12", "2b53:6cde"]);
  });
});

describe("shards", () => {
  const spread = (keys: Iterable<Uint8Array>): number[] => {
    const counts = Array.from({ length: SHARDS }, () => 0);
    for (const key of keys) counts[shardOf(key)]++;
    return counts;
  };
  const addresses: readonly (readonly [string, (i: number) => string])[] = [
    ["ip", (i) => `10.96.${i >>> 8}.${i & 0xff}`],
    ["ip", (i) => `10.${96 + (i & 0xf)}.${(i >>> 4) & 0xff}.${i >>> 12}`],
    ["ip6", (i) => `fd00:10:96::${i.toString(16)}`],
  ];
  it.each(addresses)(
    "are of nearly the same size for sequential VIPs (%s), and for the ports of one VIP",
    (family, address) => {
      const packer = new KeyPacker(family as "ip" | "ip6");
      function* vips(): Generator<Uint8Array> {
        for (let i = 0; i < 16_000; i++) yield packer.vip(address(i), "TCP", 80).service;
      }
      function* ports(): Generator<Uint8Array> {
        for (let i = 0; i < 16_000; i++) yield packer.vip(address(1), i % 2 === 0 ? "TCP" : "UDP", 1 + i).service;
      }
      for (const keys of [vips(), ports()]) {
        const counts = spread(keys);
        // 1,000 are expected; four standard deviations would be 122.
        expect(Math.min(...counts)).toBeGreaterThan(850);
        expect(Math.max(...counts)).toBeLessThan(1150);
      }
    },
  );
});

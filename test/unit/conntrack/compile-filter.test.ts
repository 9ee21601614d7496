import { describe, expect, test } from "vitest";
import { compileFilter, matchesPatterns } from "../../../src/nft/conntrack/compile-filter.js";
import { packEntry } from "../../../src/nft/conntrack/encode.js";
import type { ConntrackEntry, ConntrackFilter } from "../../../src/nft/conntrack/conntrack-table.js";
import { KernelError } from "../../../src/nft/kernel/errors.js";

const udp: ConntrackEntry = {
  family: "ip",
  original: {
    source: "10.0.0.7",
    destination: "10.96.0.10",
    protocol: 17,
    sourcePort: 40_000,
    destinationPort: 53,
  },
  reply: { source: "10.1.0.3", destination: "10.0.0.7", protocol: 17, sourcePort: 5353, destinationPort: 40_000 },
  id: 7,
  status: 0x1aa,
  mark: 0x4001,
  zone: 0,
  timeout: 30,
};
const tcp6: ConntrackEntry = {
  family: "ip6",
  original: { source: "fd00::7", destination: "fd96::10", protocol: 6, sourcePort: 40_000, destinationPort: 80 },
  reply: { source: "fd01::3", destination: "fd00::7", protocol: 6, sourcePort: 8080, destinationPort: 40_000 },
  id: 8,
  status: 0xe,
  mark: 0,
  zone: 9,
  timeout: 300,
  state: "ESTABLISHED",
};
const sctp: ConntrackEntry = {
  ...udp,
  original: { ...udp.original, protocol: 132 },
  reply: { ...udp.reply, protocol: 132 },
  state: "ESTABLISHED",
};
const ping: ConntrackEntry = {
  ...udp,
  original: {
    source: "10.0.0.7",
    destination: "10.0.0.8",
    protocol: 1,
    sourcePort: 0,
    destinationPort: 0,
    icmp: { id: 53, type: 8, code: 0 },
  },
  reply: {
    source: "10.0.0.8",
    destination: "10.0.0.7",
    protocol: 1,
    sourcePort: 0,
    destinationPort: 0,
    icmp: { id: 53, type: 0, code: 0 },
  },
};
const zoned: ConntrackEntry = { ...udp, original: { ...udp.original, zone: 4 } };
const ENTRIES = { udp, tcp6, sctp, ping, zoned };

const rows: readonly [ConntrackFilter, readonly (keyof typeof ENTRIES)[]][] = [
  [{}, ["udp", "tcp6", "sctp", "ping", "zoned"]],
  [{ original: {} }, ["udp", "tcp6", "sctp", "ping", "zoned"]],
  [{ family: "ip" }, ["udp", "sctp", "ping", "zoned"]],
  [{ family: "ip6" }, ["tcp6"]],
  [{ protocol: 17 }, ["udp", "zoned"]],
  [{ zone: 0 }, ["udp", "sctp", "ping"]],
  [{ zone: 9 }, ["tcp6"]],
  [{ zone: 4 }, []],
  [{ mark: { value: 0x4001 } }, ["udp", "sctp", "ping", "zoned"]],
  [{ mark: { value: 0x4000, mask: 0x4000 } }, ["udp", "sctp", "ping", "zoned"]],
  [{ mark: { value: 0x4000 } }, []],
  [{ mark: { value: 0, mask: 0 } }, ["udp", "tcp6", "sctp", "ping", "zoned"]],
  [{ status: { value: 0x20, mask: 0x20 } }, ["udp", "sctp", "ping", "zoned"]],
  [{ status: { value: 0, mask: 0x20 } }, ["tcp6"]],
  [{ state: "ESTABLISHED" }, ["tcp6", "sctp"]],
  [{ state: "ESTABLISHED", protocol: 132 }, ["sctp"]],
  [{ state: "COOKIE_WAIT" }, []],
  [{ original: { destination: "10.96.0.10" } }, ["udp", "sctp", "zoned"]],
  [{ original: { destination: "10.96.0.0/12" } }, ["udp", "sctp", "zoned"]],
  [{ original: { source: "0.0.0.0/0" } }, ["udp", "sctp", "ping", "zoned"]],
  [{ original: { source: "10.0.0.7/32", destinationPort: 53 } }, ["udp", "sctp", "zoned"]],
  [{ original: { destinationPort: 53 }, protocol: 17 }, ["udp", "zoned"]],
  [{ original: { sourcePort: 0 } }, []],
  [{ reply: { source: "10.1.0.3", sourcePort: 5353 } }, ["udp", "sctp", "zoned"]],
  [{ reply: { source: "10.1.0.3", sourcePort: 53 } }, []],
  [{ original: { source: "fd00::/16" } }, ["tcp6"]],
  [{ original: { source: "fd00:0::0007" } }, ["tcp6"]],
  [{ original: { source: "fd00::/121" }, reply: { destination: "fd00::/127" } }, []],
];

test.each(rows)("%j", (filter, names) => {
  const patterns = compileFilter(filter, "test");
  const matching = Object.entries(ENTRIES).filter(([, entry]) => matchesPatterns(patterns, packEntry("test", entry)));
  expect(matching.map(([name]) => name)).toEqual(names);
});

describe("a filter that is not fully understood is rejected, with the position", () => {
  class Disguised {
    get protocol(): number {
      return 17;
    }
  }
  const wrong: readonly [unknown, RegExp][] = [
    [undefined, /filter: expected a plain object/],
    [[], /filter: expected a plain object, found an array/],
    [new Disguised(), /filter: expected a plain object/],
    [{ destination: "10.0.0.1" }, /unknown field destination; the fields are family, protocol/],
    [{ original: { destinationIP: "10.0.0.1" } }, /original: unknown field destinationIP; the fields are source/],
    [{ protocol: undefined }, /filter\.protocol is undefined; remove it/],
    [{ original: { destination: undefined } }, /original\.destination is undefined/],
    [{ original: "10.0.0.1" }, /original: expected a plain object, found "10\.0\.0\.1"/],
    [{ family: "ipv4" }, /family: expected "ip" or "ip6", found "ipv4"/],
    [{ protocol: 256 }, /protocol: expected an integer from 0 to 255, found 256/],
    [{ protocol: "udp" }, /protocol: expected an integer/],
    [{ zone: 65_536 }, /zone: expected an integer from 0 to 65535/],
    [{ mark: 1 }, /mark: expected a plain object/],
    [{ mark: { value: -1 } }, /mark\.value: expected an integer/],
    [{ mark: { value: 1, mask: 2 ** 32 } }, /mark\.mask: expected an integer/],
    [{ status: { value: 1 } }, /status\.mask: expected an integer from 0 to 4294967295, found undefined/],
    [{ state: "ESTABLISH" }, /unknown state "ESTABLISH"; the states are NONE, SYN_SENT/],
    [{ state: 3 }, /unknown state 3/],
    [{ state: "ESTABLISHED", protocol: 17 }, /state: protocol 17 has no states/],
    [{ state: "COOKIE_WAIT", protocol: 6 }, /unknown state "COOKIE_WAIT"; the states are NONE, SYN_SENT/],
    [{ original: { source: "10.0.0" } }, /original\.source: expected an address or a CIDR, found "10\.0\.0"/],
    [{ original: { source: "" } }, /expected an address or a CIDR, found ""/],
    [{ original: { source: "fe80::1%eth0" } }, /expected an address or a CIDR/],
    [{ original: { source: "10.0.0.0/33" } }, /"10\.0\.0\.0\/33" is not a CIDR/],
    [{ original: { source: "10.0.0.1/8" } }, /has host bits; the network is 10\.0\.0\.0\/8/],
    [{ original: { source: "10.0.0.1", destination: "fd00::1" } }, /destination "fd00::1" is IPv6, but .* is IPv4/],
    [{ family: "ip", reply: { source: "fd00::1" } }, /reply\.source "fd00::1" is IPv6, but family is IPv4/],
    [{ original: { sourcePort: 65_536 } }, /original\.sourcePort: expected an integer from 0 to 65535/],
    [{ original: { sourcePort: 1.5 } }, /original\.sourcePort/],
    [{ protocol: 1, original: { sourcePort: 5 } }, /original\.sourcePort: protocol 1 has no ports/],
  ];
  test.each(wrong)("%j", (filter, reason) => {
    const compile = (): unknown => compileFilter(filter as ConntrackFilter, "delete matching");
    expect(compile).toThrow(KernelError);
    expect(compile).toThrow(reason);
    expect(compile).toThrow(/^delete matching: /);
    expect(compile).toThrow(expect.objectContaining({ code: "invalid" }) as Error);
  });
});

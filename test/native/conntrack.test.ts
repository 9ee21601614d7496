import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { plainEntry, unpackRecords } from "../../src/nft/conntrack/decode.js";
import { compileFilter, packPatterns } from "../../src/nft/conntrack/compile-filter.js";
import { NetlinkConntrack } from "../../src/nft/conntrack/netlink-conntrack.js";
import { STATES } from "../../src/nft/conntrack/protocol-states.js";
import {
  CONNTRACK_STATUS,
  type ConntrackEntry,
  type ConntrackFilter,
} from "../../src/nft/conntrack/conntrack-table.js";
import { loadAddon } from "../../src/nft/kernel/addon.js";
import { all, flow, refusal } from "../support/conntrack-entries.ts";
import { Namespace } from "../lab/namespace.js";
import { child } from "./lab.js";

/**
 * A namespace that is client, node and endpoints at once: 10.0.0.1 and 10.1.0.3 are its own, 10.96.0.10 is translated
 * (DNAT).
 */
let namespace: Namespace;
let table: NetlinkConntrack;
let netns: string;

const RULES = `
  table ip t {
    chain nat { type nat hook output priority -100; policy accept;
      ip daddr 10.96.0.10 udp dport 53 dnat to 10.1.0.3:5353
      ip daddr 10.96.0.10 tcp dport 80 dnat to 10.1.0.3:8080
      ip daddr 10.96.0.10 sctp dport 80 dnat to 10.1.0.3:8080
    }
    chain marks { type filter hook output priority 0; policy accept; udp dport 5353 ct mark set 0x4001; }
  }`;

beforeAll(async () => {
  const name = `conntrack-${process.pid}`;
  namespace = await Namespace.create(name);
  netns = `/run/netns/${name}`;
  await namespace.ip([
    "link set lo up",
    "address add 10.0.0.1/32 dev lo",
    "address add 10.1.0.3/32 dev lo",
    "route add 10.96.0.0/12 dev lo",
  ]);
  await namespace.mustRun(["nft", "-f", "-"], { input: RULES });
  for (const [protocol, port] of [
    ["udp", 5353],
    ["tcp", 8080],
    ["sctp", 8080],
  ] as const) {
    await namespace.agent().serve(protocol, "10.1.0.3", port, "endpoint");
  }
  table = await NetlinkConntrack.open({ netns });
});
afterAll(async () => {
  await table.close();
  await namespace.destroy();
});

/** Returns the only entry that matches. */
async function only(filter: ConntrackFilter): Promise<ConntrackEntry> {
  const found = await all(table, filter);
  expect(found).toHaveLength(1);
  return found[0];
}

/**
 * Returns the setting's current value. Returns undefined if the kernel hides it because we are root only in a user
 * namespace.
 */
async function setting(name: string, value?: number): Promise<number | undefined> {
  if (value !== undefined) await namespace.sysctl({ [`net.netfilter.${name}`]: value });
  const shown = await namespace.run(["cat", `/proc/sys/net/netfilter/${name}`]);
  return shown.code === 0 ? Number(shown.stdout) : undefined;
}

describe("flows of real packets", () => {
  test("UDP to a service", async () => {
    const outcomes = await namespace.agent().probe({
      protocol: "udp",
      source: "10.0.0.1",
      sourcePort: 40_001,
      destination: "10.96.0.10",
      port: 53,
    });
    expect(outcomes).toMatchObject([{ result: "ok", name: "endpoint" }]);
    const { seenReply, confirmed, destinationNat, destinationNatDone, sourceNatDone } = CONNTRACK_STATUS;
    const entry = await only({ protocol: 17, original: { destination: "10.96.0.10" } });
    expect(entry).toMatchObject({
      family: "ip",
      original: { source: "10.0.0.1", destination: "10.96.0.10", sourcePort: 40_001, destinationPort: 53 },
      reply: { source: "10.1.0.3", destination: "10.0.0.1", sourcePort: 5353, destinationPort: 40_001 },
      mark: 0x4001,
    });
    expect(entry.status).toBe(seenReply | confirmed | destinationNat | destinationNatDone | sourceNatDone);
    expect(entry.timeout).toBeGreaterThan(0);
    expect(await table.delete(entry)).toBe(true);
  });

  test("TCP and SCTP, with the final states of their connections", async () => {
    for (const protocol of ["tcp", "sctp"] as const) {
      const probe = { protocol, source: "10.0.0.1", destination: "10.96.0.10", port: 80 };
      expect(await namespace.agent().probe(probe)).toMatchObject([{ result: "ok" }]);
    }
    const tcp = await only({ protocol: 6, original: { destination: "10.96.0.10", destinationPort: 80 } });
    expect(["TIME_WAIT", "LAST_ACK", "CLOSE_WAIT", "CLOSE", "FIN_WAIT"]).toContain(tcp.state);
    expect(tcp.reply).toMatchObject({ source: "10.1.0.3", sourcePort: 8080 });
    expect((await all(table, { protocol: 6, state: tcp.state as string })).length).toBeGreaterThan(0);
    const sctp = await only({ protocol: 132, original: { destination: "10.96.0.10", destinationPort: 80 } });
    // The lab's own SCTP completes only the first two handshake packets, so the state depends on the kernel.
    expect(STATES.get(132)).toContain(sctp.state);
    expect(await all(table, { protocol: 132, state: sctp.state as string })).toHaveLength(1);
    expect(await all(table, { protocol: 132, state: "HEARTBEAT_SENT" })).toEqual([]);
  });

  test("counters and times, if the kernel keeps them", async () => {
    const kept = (await setting("nf_conntrack_acct", 1)) === 1;
    const timed = (await setting("nf_conntrack_timestamp", 1)) === 1;
    const before = Date.now();
    await namespace.agent().probe({
      protocol: "udp",
      source: "10.0.0.1",
      sourcePort: 40_002,
      destination: "10.96.0.10",
      port: 53,
    });
    const entry = await only({ original: { sourcePort: 40_002, destination: "10.96.0.10" } });
    expect("counters" in entry).toBe(kept);
    expect("startedAt" in entry).toBe(timed);
    if (kept) {
      expect(entry.counters?.original.packets).toBe(1n);
      expect(entry.counters?.original.bytes).toBeGreaterThan(28n);
      expect(entry.counters?.reply.packets).toBe(1n);
    }
    if (timed) expect(Math.abs((entry.startedAt as number) - before)).toBeLessThan(60_000);
    await setting("nf_conntrack_acct", 0);
    await setting("nf_conntrack_timestamp", 0);
  });

  test("labels are read once a rule uses them", async () => {
    await namespace.mustRun(["nft", "add chain ip t labels { type filter hook output priority 1; }"]);
    await namespace.mustRun(["nft", "add rule ip t labels udp dport 5353 ct label set 9"]);
    await namespace.agent().probe({
      protocol: "udp",
      source: "10.0.0.1",
      sourcePort: 40_003,
      destination: "10.96.0.10",
      port: 53,
    });
    const { labels } = await only({ original: { sourcePort: 40_003, destination: "10.96.0.10" } });
    expect(labels).toEqual(Uint8Array.from({ length: 16 }, (_, i) => (i === 1 ? 2 : 0)));
    const wanted = Uint8Array.from({ length: 16 }, (_, i) => i);
    await table.create(flow({ client: "10.3.0.1" }, { labels: wanted }));
    expect((await table.lookup("ip", flow({ client: "10.3.0.1" }).original))?.labels).toEqual(wanted);
    await namespace.mustRun(["nft", "delete chain ip t labels"]);
  });
});

describe("a kernel that supports filters", () => {
  test("sends little more than the matching entries", async () => {
    await table.deleteMatching({});
    for (let i = 0; i < 300; i++) {
      await table.create(flow({ vip: `10.96.1.${i % 10}`, clientPort: 1000 + i, protocol: i % 3 === 0 ? 6 : 17 }));
      await table.create(flow({ client: "fd00::7", vip: `fd96::${i % 10}`, clientPort: 1000 + i, port: i % 100 }));
    }
    const seen = async (filter: ConntrackFilter): Promise<readonly [entries: number, seen: number]> => {
      const { entries, seen } = await table.dump(filter, () => undefined);
      return [entries, seen];
    };
    expect(await seen({ family: "ip" })).toEqual([300, 300]);
    expect(await seen({ original: { destination: "10.96.1.4" } })).toEqual([30, 30]);
    expect(await seen({ original: { destination: "10.96.1.4", destinationPort: 53 }, protocol: 17 })).toEqual([20, 20]);
    expect(await seen({ original: { sourcePort: 1007 }, protocol: 17, family: "ip" })).toEqual([1, 1]);
    expect(await seen({ reply: { destinationPort: 1007 }, protocol: 17, family: "ip" })).toEqual([1, 1]);
    expect(await seen({ family: "ip", protocol: 6 })).toEqual([100, 100]);
    // The kernel does not filter by IPv6 addresses or prefixes: the addon compares these after the kernel has filtered
    // by the rest.
    expect(await seen({ original: { destination: "fd96::4" } })).toEqual([30, 300]);
    expect(await seen({ original: { destination: "fd96::4", destinationPort: 14 }, protocol: 17 })).toEqual([3, 3]);
    expect(await seen({ original: { destination: "10.96.1.4/31" } })).toEqual([60, 300]);
    expect(await seen({ mark: { value: 7 } })).toEqual([0, 0]);
    await table.deleteMatching({});
  });
});

describe("a kernel that refuses a filter", () => {
  test("no longer receives filters; dumps and deletions have the same results", async () => {
    const addon = loadAddon();
    const own = await addon.conntrackOpen({ netns });
    const packed = (filter: ConntrackFilter): Uint8Array => packPatterns(compileFilter(filter, "test"));
    const read = async (filter: Uint8Array): Promise<readonly [entries: number, seen: number]> => {
      const { blocks, seen, done } = await addon.conntrackRead(addon.conntrackDump(own, filter));
      expect(done).toBe(true);
      return [blocks.flatMap(unpackRecords).length, seen];
    };
    for (let i = 0; i < 50; i++) await table.create(flow({ vip: `10.96.1.${i % 10}`, clientPort: 1000 + i }));
    const one = packed({ original: { destination: "10.96.1.4", destinationPort: 53 }, protocol: 17 });
    expect(await read(one)).toEqual([5, 5]);
    // A family that ctnetlink cannot filter: EOPNOTSUPP, which older kernels answer to any filter.
    const refused = packed({ protocol: 17, family: "ip" });
    refused[0] = 7;
    expect(await read(refused)).toEqual([0, 0]);
    expect(await read(one)).toEqual([5, 50]);
    expect(await addon.conntrackDeleteMatching(own, one)).toEqual({ deleted: 5, absent: 0, interrupted: false });
    expect(await table.count()).toBe(45);
    addon.conntrackClose(own);
    await table.deleteMatching({});
  });
});

describe("events", () => {
  test("events that the kernel had to drop are reported as lost, and later events still arrive", async () => {
    const small = await NetlinkConntrack.open({ netns, receiveBufferBytes: 1 });
    const received = { fresh: 0, lost: 0 };
    const stream = await small.events({
      onNew: () => void received.fresh++,
      onLost: () => void received.lost++,
      onError: (error) => {
        throw error;
      },
    });
    for (let round = 0; round < 50 && received.lost === 0; round++) {
      await Promise.all(Array.from({ length: 300 }, (_, i) => table.create(flow({ clientPort: 1000 + i }))));
      await table.deleteMatching({});
      await sleep(20);
    }
    expect(received.lost).toBeGreaterThan(0);
    const before = received.fresh;
    await table.create(flow());
    await expect.poll(() => received.fresh).toBeGreaterThan(before);
    await stream.close();
    await small.close();
    await table.deleteMatching({});
  });

  test("many events at once arrive in order, and the event loop is not blocked", async () => {
    const ports: number[] = [];
    const stream = await table.events({
      onNew: ({ original }) => void ports.push(original.sourcePort),
      onLost: () => void ports.push(-1),
      onError: (error) => {
        throw error;
      },
    });
    for (let i = 0; i < 3000; i++) await table.create(flow({ clientPort: 1000 + i }));
    await expect.poll(() => ports.length).toBe(3000);
    expect(ports).toEqual(Array.from({ length: 3000 }, (_, i) => 1000 + i));
    await stream.close();
    await table.deleteMatching({});
  });
});

describe("a malformed prefilter", () => {
  const whole = {
    family: 2,
    destinations: Uint8Array.of(10, 96, 0, 1, 17, 0, 0, 53, 0, 0, 0, 0),
    lists: Uint8Array.of(0, 0, 0, 0, 1, 0, 0, 0),
    endpoints: Uint8Array.of(10, 1, 0, 1, 0, 53, 0, 0),
  };

  test.each<[string, Partial<typeof whole>, string]>([
    ["without a family", { family: 7 }, "unknown family"],
    ["half a destination", { destinations: whole.destinations.subarray(1) }, "not a list of destinations"],
    ["half an endpoint", { endpoints: whole.endpoints.subarray(1) }, "not a list of endpoints"],
    [
      "lists that end after the endpoints",
      { lists: Uint8Array.of(0, 0, 0, 0, 2, 0, 0, 0) },
      "the lists do not match the endpoints",
    ],
    [
      "lists in descending order",
      { lists: Uint8Array.of(0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0) },
      "the lists do not match",
    ],
    ["no lists", { lists: new Uint8Array(0) }, "the lists do not match the endpoints"],
    ["a missing list", { destinations: whole.destinations.with(8, 1) }, "an unknown list"],
    [
      "a list number out of range",
      { destinations: Uint8Array.of(10, 96, 0, 1, 17, 0, 0, 53, 255, 255, 255, 255) },
      "an unknown list",
    ],
  ])("%s: the read fails, and nothing is read", async (_name, part, message) => {
    const addon = loadAddon();
    const own = await addon.conntrackOpen({ netns });
    const read = (prefilter: typeof whole) =>
      addon.conntrackRead(addon.conntrackDump(own, new Uint8Array(208), prefilter));
    await expect(read({ ...whole, ...part })).rejects.toThrow(message);
    await expect(
      read({ ...whole, destinations: Uint8Array.of(10, 96, 0, 1, 17, 0, 0, 53, 0, 0, 0, 0) }),
    ).resolves.toMatchObject({ done: true });
    addon.conntrackClose(own);
  });
});

describe("handles", () => {
  test("cannot be confused with one another, or used after close", async () => {
    const addon = loadAddon();
    const own = await addon.conntrackOpen({ netns });
    const everything = new Uint8Array(208);
    const dump = addon.conntrackDump(own, everything);
    expect(() => addon.conntrackDump(dump as never, everything)).toThrow("expected a conntrack table");
    expect(() => void addon.conntrackRead(own as never)).toThrow("expected a conntrack dump");
    expect(() => addon.closeMonitor(own as never)).toThrow("expected a monitor");
    expect(() => void addon.conntrackTotals({} as never)).toThrow("expected a conntrack table");
    addon.conntrackClose(own);
    expect(() => void addon.conntrackTotals(own)).toThrow("closed");
    // The dump holds its share of the table, and continues.
    expect((await addon.conntrackRead(dump)).done).toBe(true);
    expect((await addon.conntrackRead(dump)).done).toBe(true);
  });

  test("worker threads use the table, end and are terminated", async () => {
    const result = await child("conntrack-worker.mjs", [], ["unshare", "--net"]);
    expect(result).toEqual({ codes: [0, 0, 1, 1], again: [0, 1, 0] });
  });
});

describe("requirements of opening", () => {
  test("without CAP_NET_ADMIN it fails and says so", async () => {
    const powerless = ["unshare", "--net", "setpriv", "--bounding-set", "-net_admin", "--"];
    const error = (await child("conntrack-open.mjs", [], powerless)) as { code: string; message: string };
    expect(error.code).toBe("no-permission");
    expect(error.message).toMatch(/^open: ctnetlink: EPERM .*CAP_NET_ADMIN/);
  });

  test("in a user namespace of its own it works", async () => {
    const result = await child("conntrack-open.mjs", [], ["unshare", "--user", "--map-root-user", "--net"]);
    expect(result).toMatchObject({ code: "none" });
  });

  test("a missing namespace is an error", async () => {
    const error = await refusal(NetlinkConntrack.open({ netns: "/run/netns/nowhere" }));
    expect(error).toMatchObject({ code: "system", errno: "ENOENT", details: { action: "open" } });
    expect(error.message).toContain("/run/netns/nowhere");
  });
});

test("an entry prints its contents", async () => {
  await table.create(flow());
  const entry = await table.lookup("ip", flow().original);
  expect(JSON.parse(JSON.stringify(entry))).toEqual(plainEntry(entry as ConntrackEntry));
  await table.deleteMatching({});
});

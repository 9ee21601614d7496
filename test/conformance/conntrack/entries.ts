import { expect, test } from "vitest";
import { plainEntry } from "../../../src/nft/conntrack/decode.js";
import { CONNTRACK_STATUS, type NewConntrackEntry } from "../../../src/nft/conntrack/conntrack-table.js";
import type { CurrentConntrackWorld } from "../../support/conntrack-world.ts";
import { all, flow, inverted, made, ping, refusal } from "../../support/conntrack-entries.ts";

const { confirmed, seenReply, assured, sourceNat, destinationNat, sourceNatDone, destinationNatDone } =
  CONNTRACK_STATUS;
const NAT_DONE = sourceNatDone | destinationNatDone;

export function entries(current: CurrentConntrackWorld): void {
  test("an entry is listed with all values that it was created with", async () => {
    const { table } = current();
    const created = flow({}, { mark: 0x4001, status: seenReply | assured });
    const entry = plainEntry(await made(table, created));
    const { original, reply } = created;
    expect(entry).toMatchObject({ family: "ip", original, reply, mark: 0x4001, zone: 0 });
    expect(entry.status).toBe(confirmed | seenReply | assured);
    expect(entry.timeout).toBeGreaterThan(590);
    expect(entry.timeout).toBeLessThanOrEqual(600);
    expect(entry.id).toBeGreaterThan(0);
    expect(entry).not.toHaveProperty("state");
    expect(entry).not.toHaveProperty("original.icmp");
    expect(entry).not.toHaveProperty("original.zone");
    expect(await all(table)).toEqual([{ ...entry, timeout: expect.any(Number) as number }]);
  });

  const kinds: readonly [string, NewConntrackEntry, number][] = [
    ["destination NAT", flow({ endpoint: "10.1.0.3", endpointPort: 5353 }), destinationNat | NAT_DONE],
    ["destination NAT to the same port", flow({ endpoint: "10.1.0.3" }), destinationNat | NAT_DONE],
    [
      "masquerade",
      {
        ...flow({ endpoint: "10.1.0.3", endpointPort: 5353 }),
        reply: {
          source: "10.1.0.3",
          destination: "10.0.0.1",
          protocol: 17,
          sourcePort: 5353,
          destinationPort: 33_333,
        },
      },
      sourceNat | destinationNat | NAT_DONE,
    ],
    [
      "IPv6",
      flow({ client: "fd00::7", vip: "fd96::a", endpoint: "fd01::3", endpointPort: 5353 }),
      destinationNat | NAT_DONE,
    ],
    ["ICMP", ping("10.0.0.7", "10.0.0.8", 77), 0],
    ["ICMPv6", ping("fd00::7", "fd00::8", 78), 0],
    ["TCP", flow({ protocol: 6 }, { state: "ESTABLISHED", status: seenReply }), seenReply],
    ["SCTP", flow({ protocol: 132 }, { state: "COOKIE_WAIT" }), 0],
    ["GRE, whose ports are keys", flow({ protocol: 47, clientPort: 0, port: 9 }), 0],
    ["a protocol without ports", flow({ protocol: 50, clientPort: 0, port: 0 }), 0],
    ["a zone", flow({}, { zone: 7 }), 0],
  ];
  test.each(kinds)("%s", async (_, created, status) => {
    const { table } = current();
    const entry = plainEntry(await made(table, created));
    const { family, original, reply, zone = 0, state } = created;
    expect(entry).toMatchObject({ family, original, reply, zone, ...(state !== undefined && { state }) });
    expect("state" in entry).toBe(state !== undefined);
    expect(entry.status & ~confirmed).toBe(status);
    expect(await all(table)).toEqual([{ ...entry, timeout: expect.any(Number) as number }]);
  });

  test("an address in another notation is the same address", async () => {
    const { table } = current();
    await table.create(flow({ client: "fd00:0:0::7", vip: "FD96::A", endpoint: "fd01::0003" }));
    const found = await table.lookup("ip6", flow({ client: "fd00::0007", vip: "fd96::a" }).original);
    expect(found?.original.source).toBe("fd00::7");
    expect(found?.original.destination).toBe("fd96::a");
    expect(found?.reply.source).toBe("fd01::3");
  });

  test("a second entry with the same tuple, in either direction, is refused", async () => {
    const { table } = current();
    await table.create(flow());
    expect(await refusal(table.create(flow()))).toMatchObject({ code: "system", errno: "EEXIST" });
    const { original, reply } = flow();
    const turned = { ...flow(), original: reply, reply: original };
    expect((await refusal(table.create(turned))).errno).toBe("EEXIST");
    await table.create(flow({ clientPort: 40_001 }));
    expect(await table.count()).toBe(2);
  });

  test("zones keep entries with the same tuple apart, in both directions or in one", async () => {
    const { table } = current();
    await table.create(flow());
    await table.create(flow({}, { zone: 3 }));
    const { original, reply } = flow({ clientPort: 40_001 });
    await table.create({ ...flow(), original: { ...original, zone: 4 }, reply });
    expect((await all(table)).map((entry) => [entry.zone, entry.original.zone])).toEqual([
      [0, undefined],
      [3, undefined],
      [0, 4],
    ]);
    expect((await table.lookup("ip", original))?.id).toBeUndefined();
    expect((await table.lookup("ip", { ...original, zone: 4 }))?.original.zone).toBe(4);
    expect((await table.lookup("ip", flow().original, 3))?.zone).toBe(3);
    expect(await table.lookup("ip", flow().original, 9)).toBeUndefined();
  });

  test("a missing entry is not found", async () => {
    const { table } = current();
    await table.create(flow());
    expect(await table.lookup("ip", flow({ clientPort: 1 }).original)).toBeUndefined();
    expect(await table.lookup("ip", flow({ protocol: 6 }).original)).toBeUndefined();
    expect(await table.lookup("ip6", flow({ client: "fd00::1", vip: "fd00::2" }).original)).toBeUndefined();
  });

  test("an entry is also found by its reply", async () => {
    const { table } = current();
    const created = flow({ endpoint: "10.1.0.3", endpointPort: 5353 });
    const { id } = await made(table, created);
    expect((await table.lookup("ip", created.reply))?.id).toBe(id);
    expect(await table.lookup("ip", inverted(created.original))).toBeUndefined();
  });

  test("an invalid entry is refused before the kernel is asked", async () => {
    const { table } = current();
    const { original } = flow();
    const wrong: readonly [Promise<unknown>, RegExp][] = [
      [
        table.create({ ...flow(), original: { ...original, source: "nowhere" } }),
        /^create: original\.source: expected an IPv4 address, found "nowhere"/,
      ],
      [
        table.create({ ...flow(), original: { ...original, destination: "fd00::1" } }),
        /original\.destination: expected an IPv4 address/,
      ],
      [
        table.create({ ...flow(), original: { ...original, sourcePort: 65_536 } }),
        /sourcePort: expected an integer from 0 to 65535, found 65536/,
      ],
      [table.create({ ...flow(), reply: { ...original, protocol: 6 } }), /different protocols/],
      [table.create(flow({ protocol: 1 })), /protocol 1 needs icmp/],
      [table.create(flow({}, { timeout: -1 })), /timeout: expected an integer/],
      [table.create(flow({}, { status: CONNTRACK_STATUS.dying })), /status: bits 0x200 cannot be set/],
      [table.create(flow({}, { state: "ESTABLISHED" })), /state: protocol 17 has no states/],
      [table.create(flow({}, { labels: new Uint8Array(4) })), /labels: expected 16 bytes/],
      [table.lookup("ip", { ...original, destination: "10.0.0" }), /^lookup: original\.destination: expected an IPv4/],
      [table.lookup("ip", original, 65_536), /zone: expected an integer/],
    ];
    for (const [call, reason] of wrong) {
      const error = await refusal(call);
      expect(error.code).toBe("invalid");
      expect(error.message).toMatch(reason);
    }
    expect(await table.count()).toBe(0);
  });

  test("count, max and stats return plausible numbers", async () => {
    const { table } = current();
    expect(await table.count()).toBe(0);
    for (let i = 0; i < 5; i++) await table.create(flow({ clientPort: 1000 + i }));
    expect(await table.count()).toBe(5);
    expect(await table.max()).toBeGreaterThan(5);
    const stats = await table.stats();
    expect(Object.keys(stats).sort()).toEqual(
      ["drop", "earlyDrop", "error", "found", "insert", "insertFailed", "invalid"].sort(),
    );
    for (const count of Object.values(stats)) expect(count).toBeGreaterThanOrEqual(0);
  });

  test("entries end when their timeout expires", async () => {
    const { table, wait } = current();
    await table.create(flow({}, { timeout: 1 }));
    await table.create(flow({ clientPort: 2 }));
    await wait(1_500);
    expect((await all(table)).map(({ original }) => original.sourcePort)).toEqual([2]);
  });
}

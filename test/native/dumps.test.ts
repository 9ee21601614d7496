import { describe, expect, test } from "vitest";
import { DATA_VERDICT, SetFlag } from "../../src/nft/kernel/constants.js";
import type { ElementBatch, SetInfo, Verdict } from "../../src/nft/kernel/kernel.js";
import { pack, unpack } from "../support/operations.ts";
import {
  addChain,
  addresses,
  addRule,
  addSet,
  addTable,
  dropTable,
  elements,
  ip,
  kernelError,
  manyAddresses,
  useLab,
} from "./lab.js";
import { atLength } from "../lab/length.ts";

const lab = useLab();

describe("objects", () => {
  test("tables of all families, or of one, are dumped", async () => {
    const { kernel } = lab();
    const userdata = Uint8Array.of(1, 2, 3);
    await kernel.commit([
      { op: "add", kind: "table", family: "ip", table: "a", userdata },
      { op: "add", kind: "table", family: "ip6", table: "a", flags: 1 },
      { op: "add", kind: "table", family: "inet", table: "b" },
    ]);
    const all = await kernel.tables();
    expect(all).toMatchObject([
      { family: "ip", table: "a", flags: 0, use: 0, userdata },
      { family: "ip6", table: "a", flags: 1 },
      { family: "inet", table: "b" },
    ]);
    expect(all.every(({ handle }) => typeof handle === "bigint" && handle > 0n)).toBe(true);
    expect((await kernel.tables("ip6")).map(({ family, table }) => [family, table])).toEqual([["ip6", "a"]]);
    await kernel.commit(all.map(({ family, table }) => dropTable({ family, table })));
  });

  test("a table with an owner reports its owner", async () => {
    const { kernel } = lab();
    await kernel.commit([{ op: "add", kind: "table", ...ip("owned"), flags: 2 }]);
    expect(await kernel.tables()).toMatchObject([{ table: "owned", flags: 2, owner: kernel.portId }]);
    await kernel.commit([dropTable(ip("owned"))]);
  });

  test("chains of one table are dumped", async () => {
    const { kernel } = lab();
    const [a, b] = [ip("a"), ip("b")];
    const base = { type: "nat", hook: 4, priority: 100, policy: "accept" } as const;
    await kernel.commit([
      addTable(a),
      addTable(b),
      { op: "add", kind: "chain", ...a, chain: "base", base },
      addChain(a, "plain"),
      addChain(b, "other"),
      addRule(a, "base", [{ type: "immediate", dreg: 0, data: { verdict: "jump", chain: "plain" } }]),
    ]);
    expect(await kernel.chains(a)).toMatchObject([
      { ...a, chain: "base", base, flags: 1, use: 1 },
      { ...a, chain: "plain", flags: 0, use: 1 },
    ]);
    expect(await kernel.chains(ip("none"))).toEqual([]);
    await kernel.commit([dropTable(a), dropTable(b)]);
  });

  test("sets are dumped, also anonymous ones", async () => {
    const { kernel } = lab();
    const t = ip("sets");
    const named: SetInfo = addresses("named", {
      flags: SetFlag.map | SetFlag.timeout,
      dataType: 7,
      dataLen: 4,
      size: 100,
      timeout: 5000n,
      gcInterval: 1000,
      userdata: Uint8Array.of(0, 4, 1, 0, 0, 0),
    });
    await kernel.commit([
      addTable(t),
      addChain(t, "c"),
      addSet(t, named),
      { op: "add", kind: "set", ...t, ...addresses("__set%d", { flags: SetFlag.anonymous | SetFlag.constant }), id: 5 },
      { ...elements("add", t, "__set%d", manyAddresses(3)), setId: 5 } as never,
      addRule(t, "c", [
        { type: "payload", base: 1, offset: 16, len: 4, dreg: 1 },
        { type: "lookup", set: "__set%d", setId: 5, sreg: 1 },
      ]),
    ]);
    const sets = await kernel.sets(t);
    expect(sets).toMatchObject([named, { set: "__set0", flags: 3, keyLen: 4 }]);
    expect((await kernel.elements(t, sets[1])).count).toBe(3);
    expect(await kernel.sets(ip("none"))).toEqual([]);
    await kernel.commit([dropTable(t)]);
  });
});

describe("elements", () => {
  const t = ip("elements");

  async function stored(info: SetInfo, batch: ElementBatch): Promise<ElementBatch> {
    const { kernel } = lab();
    await kernel.commit([addTable(t), addChain(t, "here"), addSet(t, info), elements("add", t, info.set, batch)]);
    const found = await kernel.elements(t, info);
    // Dumped elements can be sent again.
    await kernel.commit([{ op: "flush", kind: "elements", ...t, set: info.set }, elements("add", t, info.set, found)]);
    const again = await kernel.elements(t, info);
    await kernel.commit([dropTable(t)]);
    expect(unpack(again).map(withoutTime)).toEqual(unpack(found).map(withoutTime));
    return found;
  }
  const withoutTime = ({ expiration: _, ...row }: Record<string, unknown>): Record<string, unknown> => row;

  test("a missing set or a missing table is an error", async () => {
    const { kernel } = lab();
    const error = await kernelError(kernel.elements(t, addresses("s")));
    expect(error).toMatchObject({ code: "not-found", errno: "ENOENT", details: { action: "dump elements" } });
  });

  test("an empty set has no elements", async () => {
    expect(await stored(addresses("s"), manyAddresses(0))).toMatchObject({ count: 0, keyLen: 4, dataLen: 0 });
  });

  test("elements arrive in the order of their keys, whatever the kernel's order", async () => {
    const found = await stored(addresses("s"), manyAddresses(5_000));
    expect(Buffer.from(found.bytes)).toEqual(Buffer.from(manyAddresses(5_000).bytes));
  });

  test("a verdict map names each verdict once", async () => {
    const go: Verdict = { verdict: "goto", chain: "here" };
    const batch = pack(
      ["1.1.1.1", "2.2.2.2", "3.3.3.3"].map((key, i) => ({ key, data: i === 1 ? { verdict: "drop" } : go })),
    );
    const found = await stored(addresses("v", { flags: SetFlag.map, dataType: DATA_VERDICT }), batch);
    expect(found.verdicts).toHaveLength(2);
    expect(unpack(found)).toEqual([
      { key: "01010101", data: go },
      { key: "02020202", data: { verdict: "drop" } },
      { key: "03030303", data: go },
    ]);
  });

  test("timeouts are an element's own or the set's default", async () => {
    const info = addresses("s", { flags: SetFlag.timeout, timeout: 60_000n });
    const found = await stored(
      info,
      pack([
        { key: "1.1.1.1", timeout: 3_600_000 },
        { key: "2.2.2.2", timeout: 0 },
      ]),
    );
    const [own, usual] = unpack(found);
    expect(own).toMatchObject({ key: "01010101", timeout: 3_600_000 });
    expect(usual).toMatchObject({ key: "02020202", timeout: 60_000 });
    for (const { timeout, expiration } of [own, usual]) {
      expect(expiration).toBeGreaterThan((timeout as number) - 30_000);
      expect(expiration).toBeLessThanOrEqual(timeout as number);
    }
  });

  test("intervals are returned as start and end", async () => {
    const info = addresses("s", { flags: SetFlag.interval });
    const found = await stored(
      info,
      pack([
        { key: "10.0.0.0", flags: 0 },
        { key: "11.0.0.0", flags: 1 },
      ]),
    );
    expect(found.flags).toBe(true);
    expect(unpack(found)).toEqual([{ key: "0a000000" }, { key: "0b000000", end: true }]);
  });

  test("ranges of a concatenation have both ends in one record", async () => {
    const info: SetInfo = {
      set: "s",
      flags: SetFlag.interval | SetFlag.concat,
      keyType: (7 << 6) | 13,
      keyLen: 8,
      fieldLens: [4, 2],
    };
    const key = Uint8Array.of(10, 0, 0, 0, 0, 80, 0, 0);
    const keyEnd = Uint8Array.of(10, 0, 0, 255, 0, 90, 0, 0);
    const found = await stored(info, pack([{ key, keyEnd }]));
    expect(found).toMatchObject({ count: 1, keyEnd: true });
    expect([...found.bytes]).toEqual([...key, ...keyEnd]);
  });

  test("a catch-all element appears with its flag, and the records before it keep their bytes", async () => {
    const info = addresses("m", { flags: SetFlag.map, dataType: 7, dataLen: 4 });
    const found = await stored(
      info,
      pack([
        { key: "1.1.1.1", data: "9.9.9.9", flags: 0 },
        { key: "2.2.2.2", data: "8.8.8.8", flags: 0 },
        { key: "0.0.0.0", data: "7.7.7.7", flags: 2 },
      ]),
    );
    expect(found.flags).toBe(true);
    expect(unpack(found)).toEqual([
      { key: "*", data: "07070707" },
      { key: "01010101", data: "09090909" },
      { key: "02020202", data: "08080808" },
    ]);
  });

  test("a set that was described wrongly is an error, not a guess", async () => {
    const { kernel } = lab();
    const info = addresses("s");
    await kernel.commit([addTable(t), addSet(t, info), elements("add", t, "s", manyAddresses(1))]);
    const error = await kernelError(kernel.elements(t, { ...info, keyLen: 8 }));
    expect(error.code).toBe("invalid");
    expect(error.message).toContain("key of 4 bytes");
    await kernel.commit([dropTable(t)]);
  });
});

test("dumps that are interrupted by commits are read again, and their result is complete", async () => {
  const { kernel, open } = lab();
  const other = await open();
  const t = ip("busy");
  const COUNT = 15_000;
  const info = addresses("s");
  await kernel.commit([addTable(t), addSet(t, info), elements("add", t, "s", manyAddresses(COUNT))]);
  const state = { busy: true, pauseMs: 20 };
  const writer = (async () => {
    for (let i = 0; state.busy; i++) {
      await other.commit([addTable(ip(`x${i % 7}`))]);
      await other.commit([{ op: "destroy", kind: "table", ...ip(`x${i % 7}`) }]);
      await new Promise((resolve) => setTimeout(resolve, state.pauseMs));
    }
  })();
  const outcomes: string[] = [];
  // If a machine is too slow to read everything between two commits, the pauses grow.
  for (let i = 0; i < 10 || (i < 100 && !outcomes.includes("whole")); i++) {
    if (i >= 10) state.pauseMs += 20;
    outcomes.push(
      await kernel.elements(t, info).then(
        ({ count }) => (count === COUNT ? "whole" : `${count}`),
        (error: { code: string }) => error.code,
      ),
    );
  }
  state.busy = false;
  await writer;
  expect(outcomes.filter((outcome) => outcome !== "whole" && outcome !== "interrupted")).toEqual([]);
  expect(outcomes).toContain("whole");
  await kernel.commit([dropTable(t)]);
});

test("elements() of a set that the kernel is resizing returns every element once", async () => {
  const { kernel } = lab();
  const t = ip("resized");
  // Without a size, the kernel enlarges the hash table after the commit, for some milliseconds.
  const info = addresses("s");
  const [PIECE, PIECES, ROUNDS] = [12_500, 4, atLength({ short: 5, usual: 20 })];
  const pieces = Array.from({ length: PIECES }, (_, i) =>
    elements("add", t, "s", manyAddresses(PIECE, 0x0a000000 + i * PIECE)),
  );
  const counts: string[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    await kernel.commit([addTable(t), addSet(t, info)]);
    // Sent one by one, to fit any send buffer.
    for (const piece of pieces) await kernel.commit([piece]);
    const { count, bytes } = await kernel.elements(t, info);
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    const distinct = new Set(Array.from({ length: count }, (_, i) => view.getUint32(4 * i)));
    counts.push(`${count}, ${distinct.size} of them distinct`);
    await kernel.commit([dropTable(t)]);
  }
  const whole = `${PIECE * PIECES}, ${PIECE * PIECES} of them distinct`;
  expect(counts).toEqual(counts.map(() => whole));
});

test("addresses of the namespace's interfaces are dumped", async () => {
  const { kernel, netns } = lab();
  const { execFileSync } = await import("node:child_process");
  const run = (...args: string[]): string =>
    execFileSync("nsenter", [`--net=${netns}`, "ip", ...args], { encoding: "utf8" });
  run("link", "set", "lo", "up");
  run("link", "add", "veth-a", "type", "veth", "peer", "name", "veth-b");
  run("addr", "add", "192.0.2.1/24", "dev", "veth-a");
  run("addr", "add", "198.51.100.1", "peer", "198.51.100.2/32", "dev", "veth-b");
  run("addr", "add", "2001:db8::1/64", "dev", "veth-a", "nodad");
  const found = await kernel.interfaces.addresses();
  const index = Number(run("-o", "link", "show", "veth-a").split(":")[0]);
  const v6 = Uint8Array.of(0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);
  expect(found).toEqual(
    expect.arrayContaining([
      expect.objectContaining({
        family: "ip",
        address: Uint8Array.of(127, 0, 0, 1),
        prefixLength: 8,
        interfaceName: "lo",
      }),
      {
        family: "ip",
        address: Uint8Array.of(192, 0, 2, 1),
        prefixLength: 24,
        interfaceIndex: index,
        interfaceName: "veth-a",
      },
      // On a point-to-point link, our end, not the peer's.
      expect.objectContaining({ family: "ip", address: Uint8Array.of(198, 51, 100, 1), interfaceName: "veth-b" }),
      { family: "ip6", address: v6, prefixLength: 64, interfaceIndex: index, interfaceName: "veth-a" },
    ]),
  );
});

import { expect, test } from "vitest";
import { plainEntry } from "../../../src/nft/conntrack/decode.js";
import type { CurrentConntrackWorld } from "../../support/conntrack-world.ts";
import { all, flow, made, ping, refusal, remade } from "../../support/conntrack-entries.ts";

export function changes(current: CurrentConntrackWorld): void {
  test("a timeout and a mark can be changed", async () => {
    const { table } = current();
    const entry = await made(table, flow({}, { mark: 0xff00 }));
    await table.update(entry, { timeout: 30 });
    let [now] = await all(table);
    expect(now.timeout).toBeGreaterThan(20);
    expect(now.timeout).toBeLessThanOrEqual(30);
    expect(now.mark).toBe(0xff00);
    await table.update(entry, { mark: { value: 5 } });
    [now] = await all(table);
    expect(now.mark).toBe(5);
    expect(now.timeout).toBeLessThanOrEqual(30);
    await table.update(entry, { timeout: 900, mark: { value: 0xffff_4001, mask: 0x4000 } });
    [now] = await all(table);
    expect(now.mark).toBe(0x4005);
    expect(now.timeout).toBeGreaterThan(800);
    await table.update(entry, { mark: { value: 0, mask: 0x4000 } });
    expect((await all(table))[0].mark).toBe(5);
  });

  test("a deleted entry, or a later one with the same tuple, is not changed", async () => {
    const { table } = current();
    const entry = plainEntry(await made(table, flow()));
    await table.deleteMatching({});
    expect(await refusal(table.update(entry, { mark: { value: 1 } }))).toMatchObject({
      code: "not-found",
      errno: "ENOENT",
    });
    await remade(table, flow(), entry.id);
    expect((await refusal(table.update(entry, { mark: { value: 1 } }))).errno).toBe("ENOENT");
    expect((await table.lookup("ip", flow().original))?.mark).toBe(0);
  });

  test("a change that cannot be read is refused", async () => {
    const { table } = current();
    const entry = await made(table, flow());
    expect((await refusal(table.update(entry, { timeout: 1.5 }))).message).toMatch(/^update: timeout: expected/);
    expect((await refusal(table.update(entry, { mark: { value: -1 } }))).message).toMatch(/mark\.value: expected/);
    expect((await refusal(table.update(entry, { mark: { value: 1, mask: 2 ** 32 } }))).code).toBe("invalid");
  });

  test("an entry can be deleted only once", async () => {
    const { table } = current();
    const entry = await made(table, flow({ endpoint: "10.1.0.3" }));
    await table.create(flow({ clientPort: 2 }));
    expect(await table.delete(entry)).toBe(true);
    expect(await table.delete(entry)).toBe(false);
    expect((await all(table)).map(({ original }) => original.sourcePort)).toEqual([2]);
  });

  test("a newer entry with the same tuple is not deleted", async () => {
    const { table } = current();
    const old = plainEntry(await made(table, flow()));
    expect(await table.delete(old)).toBe(true);
    const next = await remade(table, flow(), old.id);
    expect(await table.delete(old)).toBe(false);
    expect((await table.lookup("ip", flow().original))?.id).toBe(next.id);
  });

  test("entries of every kind are deleted together, and absent ones are counted", async () => {
    const { table } = current();
    const created = [
      flow({ endpoint: "10.1.0.3" }),
      flow({ client: "fd00::7", vip: "fd96::a", endpoint: "fd01::3" }),
      flow({ protocol: 6 }, { state: "ESTABLISHED" }),
      flow({ protocol: 132 }, { state: "CLOSED" }),
      flow({}, { zone: 7 }),
      ping("10.0.0.7", "10.0.0.8", 77),
      ping("fd00::7", "fd00::8", 77),
      flow({ protocol: 50, clientPort: 0, port: 0 }),
      { ...flow({ clientPort: 5 }), original: { ...flow({ clientPort: 5 }).original, zone: 2 } },
    ];
    for (const entry of created) await table.create(entry);
    await table.create(flow({ clientPort: 2 }));
    const listed = (await all(table)).filter(({ original }) => original.sourcePort !== 2);
    expect(listed).toHaveLength(created.length);
    await table.delete(listed[3]);
    // The entries of a dump itself, and copies of them.
    const views: Parameters<typeof table.deleteAll>[0][number][] = [];
    await table.dump({ family: "ip6" }, (chunk) => void views.push(...chunk));
    expect(views).toHaveLength(2);
    const rest = listed.filter(({ family }, i) => family === "ip" && i !== 3);
    expect(await table.deleteAll([...views, listed[3], ...rest])).toEqual({
      deleted: created.length - 1,
      absent: 1,
      interrupted: false,
      absentAt: [views.length],
    });
    expect((await all(table)).map(({ original }) => original.sourcePort)).toEqual([2]);
    expect(await table.deleteAll([])).toEqual({ deleted: 0, absent: 0, interrupted: false, absentAt: [] });
  });

  test("only the given entries among many are deleted", async () => {
    const { table } = current();
    for (let i = 0; i < 700; i++) await table.create(flow({ clientPort: 10_000 + i }));
    const odd = (await all(table)).filter(({ original }) => original.sourcePort % 2 === 1);
    expect(await table.deleteAll(odd)).toEqual({ deleted: 350, absent: 0, interrupted: false, absentAt: [] });
    const even = await all(table);
    expect(even.every(({ original }) => original.sourcePort % 2 === 0)).toBe(true);
    // The list of absent entries is assembled from the addon's batches.
    const mixed = odd.flatMap((gone, i) => [gone, even[i]]);
    expect(await table.deleteAll(mixed)).toEqual({
      deleted: 350,
      absent: 350,
      interrupted: false,
      absentAt: odd.map((_, i) => 2 * i),
    });
  });

  test("nothing is deleted if one of the entries is invalid", async () => {
    const { table } = current();
    const good = plainEntry(await made(table, flow()));
    const bad = { ...good, original: { ...good.original, source: "x" } };
    const error = await refusal(table.deleteAll([good, bad]));
    expect(error.code).toBe("invalid");
    expect(error.message).toMatch(/^delete: original\.source: expected an IPv4 address, found "x"/);
    expect(await table.count()).toBe(1);
  });
}

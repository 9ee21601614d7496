import { setTimeout as sleep } from "node:timers/promises";
import { beforeEach, expect, test } from "vitest";
import type { ConntrackEntry } from "../../../src/nft/conntrack/conntrack-table.js";
import type { CurrentConntrackWorld } from "../../support/conntrack-world.ts";
import { flow, refusal } from "../../support/conntrack-entries.ts";

const MANY = 3_000;

export function dumps(current: CurrentConntrackWorld): void {
  beforeEach(async () => {
    const { table } = current();
    for (let i = 0; i < MANY; i++) await table.create(flow({ clientPort: 1_000 + i, endpoint: "10.1.0.3" }));
  });

  test("many entries arrive in chunks, each entry once, and each chunk after the previous one is processed", async () => {
    const { table } = current();
    const ports = new Set<number>();
    let chunks = 0;
    let busy = 0;
    const result = await table.dump({}, async (chunk) => {
      expect(busy++).toBe(0);
      chunks++;
      for (const { original } of chunk) ports.add(original.sourcePort);
      if (chunks % 5 === 0) await sleep(1);
      busy--;
    });
    expect(result).toEqual({ entries: MANY, seen: MANY, interrupted: false });
    expect(ports.size).toBe(MANY);
    expect(chunks).toBeGreaterThan(3);
  });

  test("entries that the caller keeps do not change", async () => {
    const { table } = current();
    const kept: ConntrackEntry[] = [];
    await table.dump({}, (chunk) => void kept.push(...chunk));
    await table.deleteMatching({});
    await table.create(flow({ client: "10.9.9.9" }));
    await table.dump({}, () => undefined);
    expect(new Set(kept.map(({ original }) => original.sourcePort)).size).toBe(MANY);
    expect(kept.every(({ reply }) => reply.source === "10.1.0.3")).toBe(true);
  });

  test("an error from the callback ends the dump", async () => {
    const { table } = current();
    const failure = new Error("enough");
    let calls = 0;
    const synchronous = table.dump({}, () => {
      calls++;
      throw failure;
    });
    await expect(synchronous).rejects.toBe(failure);
    const asynchronous = table.dump({}, async () => {
      calls++;
      await sleep(1);
      throw failure;
    });
    await expect(asynchronous).rejects.toBe(failure);
    expect(calls).toBe(2);
    expect(await table.count()).toBe(MANY);
  });

  test("dumps and deletions run side by side", async () => {
    const { table } = current();
    const [whole, none, , again] = await Promise.all([
      table.dump({}, () => sleep(1)),
      table.dump({ protocol: 6 }, () => undefined),
      table.deleteMatching({ protocol: 132 }),
      table.dump({ original: { sourcePort: 1_500 } }, () => undefined),
    ]);
    expect(whole.entries).toBe(MANY);
    expect(none.entries).toBe(0);
    expect(again.entries).toBe(1);
  });

  test("entries may be deleted while they are dumped", async () => {
    const { table } = current();
    let deleted = 0;
    await table.dump({}, async (chunk) => {
      const some = chunk.filter(({ original }) => original.sourcePort % 3 === 0);
      deleted += (await table.deleteAll(some)).deleted;
    });
    expect(deleted).toBe(MANY / 3);
    expect(await table.count()).toBe(MANY - MANY / 3);
  });

  test("close() waits for running calls; later ones fail with `closed`", async () => {
    const { table } = current();
    let dumped = 0;
    const dump = table.dump({}, async (chunk) => {
      dumped += chunk.length;
      await sleep(1);
    });
    await Promise.all([table.close(), table.close()]);
    expect(dumped).toBe(MANY);
    await dump;
    const entry = { ...flow(), id: 1, status: 0, mark: 0, zone: 0 };
    const calls = [
      table.dump({}, () => undefined),
      table.lookup("ip", flow().original),
      table.create(flow()),
      table.update(entry, {}),
      table.count(),
      table.max(),
      table.stats(),
      table.delete(entry),
      table.deleteAll([]),
      table.deleteMatching({}),
      table.events({ onLost: () => undefined, onError: () => undefined }),
    ];
    for (const call of calls) expect((await refusal(call)).code).toBe("closed");
  });
}

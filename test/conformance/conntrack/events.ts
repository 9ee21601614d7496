import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import type { ConntrackTable } from "../../../src/conntrack/table/types.js";
import type { CurrentConntrackWorld } from "../../support/conntrack-world.ts";
import { flow, made } from "../../support/conntrack-entries.ts";

/** What a listener was told: "new 40000", "destroy 40000". */
class Told {
  readonly events: string[] = [];
  readonly faults: unknown[] = [];
  #stream: { close(): Promise<void> } | undefined;

  static async open(table: ConntrackTable, kinds: readonly ("new" | "destroy")[] = ["new", "destroy"]): Promise<Told> {
    const told = new Told();
    told.#stream = await table.events({
      ...(kinds.includes("new") && { onNew: ({ original }) => void told.events.push(`new ${original.sourcePort}`) }),
      ...(kinds.includes("destroy") && {
        onDestroy: ({ original }) => void told.events.push(`destroy ${original.sourcePort}`),
      }),
      onLost: () => void told.faults.push("lost"),
      onError: (error) => void told.faults.push(error),
    });
    return told;
  }

  /** Waits for so many events. */
  async until(count: number): Promise<readonly string[]> {
    await expect.poll(() => this.events, { interval: 10 }).toSatisfy(({ length }) => length >= count);
    return this.events;
  }

  async close(): Promise<void> {
    await this.#stream?.close();
  }
}

export function events(current: CurrentConntrackWorld): void {
  test("entries that come and go are told in their order", async () => {
    const { table } = current();
    const told = await Told.open(table);
    const first = await made(table, flow({ clientPort: 1 }));
    await table.create(flow({ clientPort: 2 }));
    await table.delete(first);
    await table.deleteMatching({});
    expect(await told.until(4)).toEqual(["new 1", "new 2", "destroy 1", "destroy 2"]);
    expect(told.faults).toEqual([]);
    await told.close();
  });

  test("an event has the entry's tuples and id", async () => {
    const { table } = current();
    const seen: unknown[] = [];
    const stream = await table.events({
      onNew: ({ id, original, reply, zone }) =>
        void seen.push([id, original.destination, reply.source, reply.sourcePort, zone]),
      onDestroy: ({ id }) => void seen.push(id),
      onLost: () => undefined,
      onError: () => undefined,
    });
    const { id } = await made(table, flow({ endpoint: "10.1.0.3", endpointPort: 5353 }, { zone: 4 }));
    await table.deleteMatching({});
    await expect.poll(() => seen, { interval: 10 }).toHaveLength(2);
    expect(seen).toEqual([[id, "10.96.0.10", "10.1.0.3", 5353, 4], id]);
    await stream.close();
  });

  test("only what is asked for is told", async () => {
    const { table } = current();
    const fresh = await Told.open(table, ["new"]);
    const gone = await Told.open(table, ["destroy"]);
    const none = await Told.open(table, []);
    for (let i = 1; i <= 3; i++) await table.create(flow({ clientPort: i }));
    await table.deleteMatching({});
    expect(await fresh.until(3)).toEqual(["new 1", "new 2", "new 3"]);
    expect([...(await gone.until(3))].sort()).toEqual(["destroy 1", "destroy 2", "destroy 3"]);
    expect(none.events).toEqual([]);
    for (const told of [fresh, gone, none]) await told.close();
  });

  test("nothing is told behind close(), which may be called from a handler and twice", async () => {
    const { table } = current();
    const told: number[] = [];
    const stream = await table.events({
      onNew: ({ original }) => {
        told.push(original.sourcePort);
        void stream.close();
      },
      onLost: () => undefined,
      onError: () => undefined,
    });
    await Promise.all([1, 2, 3, 4].map((clientPort) => table.create(flow({ clientPort }))));
    await expect.poll(() => told, { interval: 10 }).not.toEqual([]);
    await sleep(100);
    expect(told).toHaveLength(1);
    await stream.close();
  });
}

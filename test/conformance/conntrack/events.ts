import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import type { ConntrackTable } from "../../../src/nft/conntrack/conntrack-table.js";
import type { CurrentConntrackWorld } from "../../support/conntrack-world.ts";
import { flow, made } from "../../support/conntrack-entries.ts";

/** Events of a listener: "new 40000", "destroy 40000". */
class Received {
  readonly events: string[] = [];
  readonly faults: unknown[] = [];
  #stream: { close(): Promise<void> } | undefined;

  static async open(
    table: ConntrackTable,
    kinds: readonly ("new" | "destroy")[] = ["new", "destroy"],
  ): Promise<Received> {
    const received = new Received();
    received.#stream = await table.events({
      ...(kinds.includes("new") && {
        onNew: ({ original }) => void received.events.push(`new ${original.sourcePort}`),
      }),
      ...(kinds.includes("destroy") && {
        onDestroy: ({ original }) => void received.events.push(`destroy ${original.sourcePort}`),
      }),
      onLost: () => void received.faults.push("lost"),
      onError: (error) => void received.faults.push(error),
    });
    return received;
  }

  /** Waits for this many events. */
  async until(count: number): Promise<readonly string[]> {
    await expect.poll(() => this.events, { interval: 10 }).toSatisfy(({ length }) => length >= count);
    return this.events;
  }

  async close(): Promise<void> {
    await this.#stream?.close();
  }
}

export function events(current: CurrentConntrackWorld): void {
  test("creations and deletions of entries are reported in order", async () => {
    const { table } = current();
    const received = await Received.open(table);
    const first = await made(table, flow({ clientPort: 1 }));
    await table.create(flow({ clientPort: 2 }));
    await table.delete(first);
    await table.deleteMatching({});
    expect(await received.until(4)).toEqual(["new 1", "new 2", "destroy 1", "destroy 2"]);
    expect(received.faults).toEqual([]);
    await received.close();
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

  test("only the requested kinds of events are reported", async () => {
    const { table } = current();
    const fresh = await Received.open(table, ["new"]);
    const gone = await Received.open(table, ["destroy"]);
    const none = await Received.open(table, []);
    for (let i = 1; i <= 3; i++) await table.create(flow({ clientPort: i }));
    await table.deleteMatching({});
    expect(await fresh.until(3)).toEqual(["new 1", "new 2", "new 3"]);
    expect([...(await gone.until(3))].sort()).toEqual(["destroy 1", "destroy 2", "destroy 3"]);
    expect(none.events).toEqual([]);
    for (const received of [fresh, gone, none]) await received.close();
  });

  test("nothing is reported after close(), which may be called from a handler and twice", async () => {
    const { table } = current();
    const received: number[] = [];
    const stream = await table.events({
      onNew: ({ original }) => {
        received.push(original.sourcePort);
        void stream.close();
      },
      onLost: () => undefined,
      onError: () => undefined,
    });
    await Promise.all([1, 2, 3, 4].map((clientPort) => table.create(flow({ clientPort }))));
    await expect.poll(() => received, { interval: 10 }).not.toEqual([]);
    await sleep(100);
    expect(received).toHaveLength(1);
    await stream.close();
  });
}

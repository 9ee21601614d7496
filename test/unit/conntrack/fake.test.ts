import { expect, test } from "vitest";
import { FakeConntrack } from "../../fakes/fake-conntrack.ts";
import type { ConntrackEntry } from "../../../src/nft/conntrack/conntrack-table.js";
import { KernelError } from "../../../src/nft/kernel/errors.js";
import { flow } from "../../support/conntrack-entries.ts";

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const outcome = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => "done",
    (error: unknown) => (error instanceof KernelError ? [error.code, error.errno, error.details.action] : error),
  );

test("a requested fault affects only the next call of its kind, which changes nothing", async () => {
  const table = new FakeConntrack();
  const entry = table.add(flow());
  table.failNext({ action: "delete", errno: "ENOBUFS" });
  table.failNext({ action: "dump", code: "no-permission", errno: "EPERM" });
  expect(await table.count()).toBe(1);
  expect(await outcome(table.delete(entry))).toEqual(["system", "ENOBUFS", "delete"]);
  expect(await outcome(table.dump({}, () => undefined))).toEqual(["no-permission", "EPERM", "dump"]);
  expect(table.entries()).toEqual([entry]);
  expect(await table.delete(entry)).toBe(true);
  expect(await outcome(table.dump({}, () => undefined))).toBe("done");
});

test("a dump that is interrupted on request says so, and so does a deletion by filter", async () => {
  const table = new FakeConntrack();
  table.add(flow());
  table.interruptDumps(2);
  expect(await table.dump({}, () => undefined)).toEqual({ entries: 1, seen: 1, interrupted: true });
  expect(await table.deleteMatching({ protocol: 6 })).toEqual({ deleted: 0, absent: 0, interrupted: true });
  expect((await table.dump({}, () => undefined)).interrupted).toBe(false);
});

test("events are lost, and streams end, on request", async () => {
  const table = new FakeConntrack();
  const told: unknown[] = [];
  await table.events({
    onNew: ({ original }) => void told.push(original.sourcePort),
    onLost: () => void told.push("lost"),
    onError: (error) => void told.push(error),
  });
  table.add(flow({ clientPort: 1 }));
  table.loseEvents();
  table.add(flow({ clientPort: 2 }));
  await turn();
  const failure = new Error("gone");
  table.breakEvents(failure);
  table.add(flow({ clientPort: 3 }));
  await turn();
  expect(told).toEqual([1, "lost", 2, failure]);
});

test("entries are created, changed and deleted as if by packets", async () => {
  let now = 0;
  const table = new FakeConntrack({ now: () => now, max: 2 });
  const gone: number[] = [];
  await table.events({
    onDestroy: ({ original }) => void gone.push(original.sourcePort),
    onLost: () => undefined,
    onError: () => undefined,
  });
  const first = table.add(flow({ clientPort: 1, protocol: 6 }, { state: "SYN_SENT", timeout: 10 }));
  const second = table.add(flow({ clientPort: 2 }, { timeout: 20 }));
  expect(await outcome(table.create(flow({ clientPort: 3 })))).toEqual(["system", "ENOMEM", "create"]);
  table.change(first, { state: "ESTABLISHED", status: first.status | 2, timeout: 100 });
  expect(table.entries()[0]).toMatchObject({ id: first.id, state: "ESTABLISHED", timeout: 100 });
  now = 20_000;
  expect(table.entries()).toMatchObject([{ id: first.id, timeout: 80 }]);
  table.expire(second);
  table.expire(first);
  await turn();
  expect(gone).toEqual([2, 1]);
  expect(table.entries()).toEqual([]);
});

test("calls are recorded, and can be made to wait", async () => {
  const table = new FakeConntrack({ chunkSize: 1 });
  const entries: readonly ConntrackEntry[] = [1, 2].map((clientPort) => table.add(flow({ clientPort })));
  const waits: string[] = [];
  table.setLatency(async (action) => {
    waits.push(action);
    await turn();
  });
  table.setStats({ insertFailed: 7 });
  table.setMax(5);
  expect((await table.stats()).insertFailed).toBe(7);
  expect(await table.max()).toBe(5);
  await table.dump({ protocol: 17 }, () => undefined);
  await table.deleteAll(entries);
  await table.deleteMatching({ zone: 3 });
  expect(table.calls).toEqual([
    { action: "stats" },
    { action: "max" },
    { action: "dump", filter: { protocol: 17 } },
    { action: "delete", entries },
    { action: "delete matching", filter: { zone: 3 } },
  ]);
  // It also waits before each chunk of a dump.
  expect(waits).toEqual(["stats", "max", "dump", "dump", "dump", "delete", "delete matching"]);
});

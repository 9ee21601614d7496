import { fork } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { SetFlag } from "../../src/nft/kernel/constants.js";
import type { NftKernel } from "../../src/nft/kernel/nft-kernel.js";
import type { ChangeBatch, Monitor, MonitorOptions } from "../../src/nft/kernel/kernel.js";
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

const lab = useLab();

interface Listener {
  readonly batches: ChangeBatch[];
  readonly monitor: Monitor;
  lost: number;
  /** Resolves when the commit that produced this generation was reported. */
  until(generation: number): Promise<ChangeBatch>;
}

async function listen(kernel: NftKernel, options?: MonitorOptions): Promise<Listener> {
  const batches: ChangeBatch[] = [];
  const wake = new Set<() => void>();
  const monitor = await kernel.monitor(
    {
      onBatch: (batch) => {
        batches.push(batch);
        for (const call of wake) call();
      },
      onLost: () => listener.lost++,
      onError: (error) => {
        throw error;
      },
    },
    options,
  );
  const listener: Listener = {
    batches,
    monitor,
    lost: 0,
    until: async (generation) =>
      new Promise((resolve) => {
        const look = (): void => {
          const found = batches.find((batch) => batch.generation === generation);
          if (found === undefined) return;
          wake.delete(look);
          resolve(found);
        };
        wake.add(look);
        look();
      }),
  };
  return listener;
}

test("a commit by another process is reported with every event, its process, and the new generation", async () => {
  const { kernel, open } = lab();
  const other = await open();
  const listener = await listen(kernel);
  const t = ip("foreign");
  const { id } = await kernel.generation();
  await other.commit([
    addTable(t),
    addChain(t, "c"),
    addRule(t, "c", [{ type: "counter" }]),
    addSet(t, addresses("s")),
    elements("add", t, "s", manyAddresses(5)),
  ]);
  const batch = await listener.until(id + 1);
  expect(batch.portId).toBe(other.portId);
  expect(batch.portId).not.toBe(kernel.portId);
  expect(batch.process?.name).toBe("nft-proxier");
  expect(batch.process?.pid).toBeGreaterThan(0);
  expect(batch.events).toMatchObject([
    { action: "new", kind: "table", ...t },
    { action: "new", kind: "chain", ...t, name: "c" },
    { action: "new", kind: "rule", ...t, name: "c" },
    { action: "new", kind: "set", ...t, name: "s" },
    { action: "new", kind: "elements", ...t, name: "s", count: 5 },
  ]);
  const [rule] = await kernel.rules(t);
  expect(batch.events[2].handle).toBe(rule.handle);

  await other.commit([
    elements("delete", t, "s", manyAddresses(2)),
    elements("add", t, "s", manyAddresses(3, 0x0b000000)),
    { op: "delete", kind: "rule", ...t, chain: "c", handle: rule.handle },
  ]);
  const changed = await listener.until(id + 2);
  expect(changed.events).toHaveLength(3);
  expect(changed.events).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ action: "delete", kind: "elements", name: "s", count: 2 }),
      expect.objectContaining({ action: "new", kind: "elements", name: "s", count: 3 }),
      expect.objectContaining({ action: "delete", kind: "rule", name: "c", handle: rule.handle }),
    ]),
  );

  await other.commit([dropTable(t)]);
  expect((await listener.until(id + 3)).events).toEqual(
    expect.arrayContaining([expect.objectContaining({ action: "delete", kind: "table", ...t })]),
  );
  expect(listener.batches.map(({ generation }) => generation)).toEqual([id + 1, id + 2, id + 3]);
  await listener.monitor.close();
});

test("our own commits are reported without events, or with them on request", async () => {
  const { kernel } = lab();
  const quiet = await listen(kernel);
  const all = await listen(kernel, { skipOwn: false });
  const { id } = await kernel.generation();
  await kernel.commit([addTable(ip("own"))]);
  expect(await quiet.until(id + 1)).toMatchObject({ generation: id + 1, portId: kernel.portId, events: [] });
  expect((await all.until(id + 1)).events).toMatchObject([{ action: "new", kind: "table", table: "own" }]);
  await kernel.commit([dropTable(ip("own"))]);
  await quiet.monitor.close();
  await all.monitor.close();
});

test("only the requested tables are reported", async () => {
  const { kernel, open } = lab();
  const other = await open();
  const some = await listen(kernel, { tables: [ip("b"), { family: "ip6", table: "a" }] });
  const none = await listen(kernel, { tables: [] });
  const { id } = await kernel.generation();
  await other.commit([addTable(ip("a")), addTable(ip("b")), addTable({ family: "ip6", table: "b" })]);
  expect((await some.until(id + 1)).events).toMatchObject([{ kind: "table", family: "ip", table: "b" }]);
  expect((await none.until(id + 1)).events).toEqual([]);
  await other.commit([dropTable(ip("a")), dropTable(ip("b")), dropTable({ family: "ip6", table: "b" })]);
  await some.monitor.close();
  await none.monitor.close();
});

test("a dry run and a refused commit change nothing and are not reported", async () => {
  const { kernel, open } = lab();
  const other = await open();
  const listener = await listen(kernel);
  const { id } = await kernel.generation();
  await other.commit([addTable(ip("dry"))], { dryRun: true });
  await kernelError(other.commit([addTable(ip("bad")), dropTable(ip("none"))]));
  await other.commit([addTable(ip("real"))]);
  expect((await listener.until(id + 1)).events).toMatchObject([{ table: "real" }]);
  expect(listener.batches).toHaveLength(1);
  await other.commit([dropTable(ip("real"))]);
  await listener.monitor.close();
});

test("the elements of a large commit are one event", async () => {
  const { kernel, open } = lab();
  const other = await open();
  const listener = await listen(kernel);
  const t = ip("large");
  const { id } = await kernel.generation();
  await other.commit([
    addTable(t),
    addSet(t, addresses("s", { flags: SetFlag.timeout, size: 2000 })),
    elements("add", t, "s", manyAddresses(2000)),
  ]);
  expect((await listener.until(id + 1)).events.at(-1)).toMatchObject({ kind: "elements", name: "s", count: 2000 });
  await other.commit([dropTable(t)]);
  await listener.monitor.close();
});

test("a large commit of our own is reported only at its end, and other processes' events meanwhile as lost", async () => {
  const { kernel, open } = lab();
  const other = await open();
  const listener = await listen(kernel);
  const t = ip("loud");
  const fill = (verb: "add" | "delete"): Promise<unknown> =>
    kernel.commit([elements(verb, t, "s", manyAddresses(10_000))]);
  await kernel.commit([addTable(t), addSet(t, addresses("s", { size: 20_000 }))]);
  const { id } = await kernel.generation();
  await fill("add");
  expect(await listener.until(id + 1)).toMatchObject({ generation: id + 1, portId: kernel.portId, events: [] });
  expect(listener.lost).toBe(0);
  await other.commit([addChain(t, "c")]);
  expect((await listener.until(id + 2)).events).toMatchObject([{ kind: "chain", name: "c" }]);
  await kernel.commit([{ op: "flush", kind: "elements", ...t, set: "s" }]);
  expect((await listener.until(id + 3)).portId).toBe(kernel.portId);

  // A rejected commit changes nothing.
  await kernelError(fill("delete"));
  await other.commit([addChain(t, "d")]);
  expect((await listener.until(id + 4)).events).toMatchObject([{ kind: "chain", name: "d" }]);
  expect(listener.lost).toBe(0);

  // A process commits all the time: every commit is reported as a batch or as lost.
  const end = new AbortController();
  const theirs = (async (): Promise<number> => {
    let commits = 0;
    for (; !end.signal.aborted; commits++) {
      await other.commit([commits % 2 === 0 ? addChain(t, "e") : { op: "delete", kind: "chain", ...t, chain: "e" }]);
    }
    return commits;
  })();
  let ours = 0;
  for (; ours < 40 && listener.lost === 0; ours += 2) {
    await fill("add");
    await fill("delete");
  }
  end.abort();
  const commits = await theirs;
  await other.commit([addChain(t, "f")]);
  await listener.until(id + 4 + ours + commits + 1);
  const heard = listener.batches.filter(({ events }) => events.some(({ name }) => name === "e")).length;
  expect(heard === commits || listener.lost > 0).toBe(true);
  await other.commit([dropTable(t)]);
  await listener.monitor.close();
});

test("a foreign change that is still being announced is not lost because of our own large commit", async () => {
  const { kernel, open } = lab();
  const other = await open();
  const listener = await listen(kernel);
  const [theirs, ours] = [ip("theirs"), ip("ours")];
  await kernel.commit([
    addTable(theirs),
    addSet(theirs, addresses("s", { size: 400_000 })),
    addTable(ours),
    addSet(ours, addresses("s", { size: 4000 })),
    elements("add", ours, "s", manyAddresses(1)),
  ]);
  const deleted = (): number =>
    listener.batches.filter(({ events }) => events.some(({ action, table }) => action === "delete" && table === "ours"))
      .length;
  for (const round of [0, 1, 2]) {
    const { id } = await kernel.generation();
    const foreign = other.commit([
      elements("add", theirs, "s", manyAddresses(100_000, 0x0b000000 + round * 100_000)),
      elements("delete", ours, "s", manyAddresses(1)),
    ]);
    // The kernel raises the number first and sends the events afterwards.
    for (let now = id; now === id; now = (await kernel.generation()).id);
    await kernel.commit([elements("add", ours, "s", manyAddresses(2000, 0x0c000000 + round * 2000))]);
    await foreign;
    // This event is reported after everything that was queued before it.
    await other.commit([addChain(theirs, `fence-${round}`)]);
    await listener.until(id + 3);
    expect(deleted()).toBe(round + 1);
    // The foreign commit arrived completely: nothing was reported as lost.
    expect(listener.lost).toBe(0);
    await kernel.commit([
      elements("add", ours, "s", manyAddresses(1)),
      elements("delete", ours, "s", manyAddresses(2000, 0x0c000000 + round * 2000)),
    ]);
    await listener.until(id + 4);
  }
  await other.commit([dropTable(theirs), dropTable(ours)]);
  await listener.monitor.close();
});

test("events that the kernel had to drop are reported as lost, and later events still arrive", async () => {
  const { kernel, netns } = lab();
  const path = fileURLToPath(new URL("child/listener.mjs", import.meta.url));
  const listener = fork(path, [netns, String(64 * 1024)]);
  type Heard = "listening" | "lost" | { generation: number; events: string[] };
  const heard: Heard[] = [];
  listener.on("message", (message) => heard.push(message as Heard));
  try {
    await expect.poll(() => heard).toEqual(["listening"]);
    // While it is stopped, nothing is read, whatever the number of cores.
    listener.kill("SIGSTOP");
    await expect.poll(() => readFileSync(`/proc/${listener.pid}/stat`, "utf8")).toMatch(/\) T /);
    const t = ip("lost");
    await kernel.commit([addTable(t), ...Array.from({ length: 10_000 }, (_, i) => addChain(t, `chain-${i}`))]);
    await kernel.commit([dropTable(t)]);
    const { id } = await kernel.generation();
    listener.kill("SIGCONT");
    await expect.poll(() => heard).toContain("lost");
    // The kernel drops every event until the listener has read everything that was queued, and nobody sees when: hence one change after
    // another.
    const change = async (): Promise<string[][]> => {
      await kernel.commit([addTable(ip("found"))]);
      await kernel.commit([dropTable(ip("found"))]);
      return heard.flatMap((batch) => (typeof batch === "object" && batch.generation > id ? [batch.events] : []));
    };
    await expect.poll(change).toContainEqual(["table"]);
  } finally {
    listener.kill("SIGKILL");
  }
});

test("nothing is reported after close(), which may be called from a handler and twice", async () => {
  const { kernel, open } = lab();
  const other = await open();
  const received: number[] = [];
  const monitor: Monitor = await kernel.monitor({
    onBatch: (batch) => {
      received.push(batch.generation);
      void monitor.close();
    },
    onLost: () => undefined,
    onError: () => undefined,
  });
  const { id } = await kernel.generation();
  await Promise.all([1, 2, 3, 4].map((i) => other.commit([addTable(ip(`close-${i}`))])));
  await expect.poll(() => received).not.toEqual([]);
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(received).toEqual([id + 1]);
  await monitor.close();
  await other.commit([1, 2, 3, 4].map((i) => dropTable(ip(`close-${i}`))));
});

import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, test } from "vitest";
import { loadAddon } from "../../src/nft/kernel/addon.js";
import { KernelError } from "../../src/nft/kernel/errors.js";
import {
  addresses,
  addSet,
  addTable,
  child,
  dropTable,
  elements,
  ip,
  kernelError,
  manyAddresses,
  useLab,
} from "./lab.js";

const lab = useLab();

test("commits keep the order of their calls", async () => {
  const { kernel } = lab();
  const t = ip("order");
  // The first is long to read and to send; the last would fail if it overtook the first.
  const done: number[] = [];
  await Promise.all([
    kernel
      .commit([addTable(t), addSet(t, addresses("s")), elements("add", t, "s", manyAddresses(15_000))])
      .then(() => done.push(1)),
    kernel.commit([elements("delete", t, "s", manyAddresses(10))]).then(() => done.push(2)),
    kernelError(kernel.commit([dropTable(ip("none"))])).then(() => done.push(3)),
    kernel.commit([dropTable(t)]).then(() => done.push(4)),
  ]);
  expect(done).toEqual([1, 2, 3, 4]);
});

test("close() waits for running calls; later ones fail with `closed`", async () => {
  const kernel = await lab().open();
  const t = ip("closing");
  const commits = Promise.all([
    kernel.commit([addTable(t), addSet(t, addresses("s")), elements("add", t, "s", manyAddresses(15_000))]),
    kernel.commit([dropTable(t)]),
  ]);
  const dump = kernel.tables();
  const handlers = { onBatch: () => undefined, onLost: () => undefined, onError: () => undefined };
  const monitor = kernel.monitor(handlers);
  await Promise.all([kernel.close(), kernel.close()]);
  expect((await commits).map(({ messages }) => messages > 0)).toEqual([true, true]);
  expect(Array.isArray(await dump)).toBe(true);
  await (await monitor).close();
  const calls = [
    kernel.commit([]),
    kernel.generation(),
    kernel.tables(),
    kernel.chains(t),
    kernel.rules(t),
    kernel.sets(t),
    kernel.elements(t, addresses("s")),
    kernel.interfaces.addresses(),
    kernel.connection.releaseMemory(),
    kernel.monitor(handlers),
  ];
  for (const call of calls) expect(await kernelError(call)).toMatchObject({ code: "closed" });
});

test("memory is released alongside other work", async () => {
  const { kernel } = lab();
  const t = ip("memory");
  const written = kernel.commit([
    addTable(t),
    addSet(t, addresses("s")),
    elements("add", t, "s", manyAddresses(15_000)),
  ]);
  await Promise.all([kernel.connection.releaseMemory(), kernel.connection.releaseMemory(), written]);
  expect((await kernel.elements(t, addresses("s"))).count).toBe(15_000);
  await kernel.connection.releaseMemory();
});

test("the addon's own handles cannot be confused with one another, or used after close", async () => {
  const addon = loadAddon();
  const connection = await addon.open();
  const batch = addon.createBatch([]);
  expect(() => addon.portId(batch as never)).toThrow("expected a connection");
  expect(() => addon.prepareBatch(connection as never, 1)).toThrow("expected a batch");
  expect(() => addon.closeMonitor({} as never)).toThrow("expected a monitor");
  expect(() => addon.commit(connection, batch)).toThrow("not prepared");
  expect(addon.prepareBatch(batch, 1000)).toBe(true);
  await addon.commit(connection, batch);
  expect(() => addon.commit(connection, batch)).toThrow("already committed");
  addon.close(connection);
  expect(() => addon.generation(connection)).toThrow("closed");
});

test("a closed or invalid inotify instance is refused, and its arguments are checked", async () => {
  const addon = loadAddon();
  expect(() => addon.inotifyOpen(undefined as never)).toThrow("expected a function");
  const inotify = addon.inotifyOpen(() => undefined);
  expect(() => addon.inotifyRead({} as never)).toThrow("expected a directory watcher");
  expect(() => addon.inotifyAdd(inotify, "a\0b", 1)).toThrow("path");
  expect(() => addon.inotifyAdd(inotify, "/", -1)).toThrow("mask");
  expect(() => addon.inotifyAdd(inotify, "/", 0)).toThrow("EINVAL");
  expect(addon.inotifyAdd(inotify, "/nowhere", 1)).toBeUndefined();
  expect(addon.inotifyRead(inotify)).toEqual([]);
  addon.inotifyRemove(inotify, 4711);
  addon.inotifyAwait(inotify);
  addon.inotifyClose(inotify);
  expect(() => addon.inotifyAwait(inotify)).toThrow("closed");
  expect(() => addon.inotifyClose(inotify)).toThrow("closed");
});

test("worker threads load the addon, end and are terminated", async () => {
  const result = await child("worker.mjs", [], ["unshare", "--net"]);
  // 1: terminated from outside, in the middle of a commit.
  expect(result).toEqual({ codes: [0, 0, 1, 1], again: [0, 1, 0] });
});

test("a failed load says what is missing", () => {
  const directory = mkdtempSync(path.join(tmpdir(), "nft-proxier-"));
  const failure = (file: string): KernelError => {
    try {
      loadAddon(file);
    } catch (error) {
      if (error instanceof KernelError) return error;
      throw error;
    }
    throw new Error("loaded");
  };
  try {
    const absent = failure(path.join(directory, "absent.node"));
    expect(absent).toMatchObject({ code: "addon", details: { action: "load addon" } });
    expect(absent.message).toMatch(
      /absent\.node does not exist, and there is no prebuilt addon for linux-\S+: run `npm run build`.*libnftnl-dev/,
    );
    const broken = path.join(directory, "broken.node");
    writeFileSync(broken, "this is no library");
    expect(failure(broken).message).toMatch(/remove build\/, and run `npm run build`/);
    const foreign = path.join(directory, "foreign.node");
    copyFileSync("/bin/true", foreign);
    expect(failure(foreign).code).toBe("addon");
  } finally {
    rmSync(directory, { recursive: true });
  }
});

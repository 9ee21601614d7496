/** The kernel interface as programs use it: the name of the committer, and dumps of elements that others created. */
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type ChangeBatch, FieldError, type Kernel, openKernel, type SetInfo, Table } from "@nft-proxier/nft";
import { Namespace } from "../lab/namespace.ts";

const ROOT = path.resolve(import.meta.dirname, "../..");
const REF = { family: "ip", table: "theirs" } as const;

let namespace: Namespace;
let kernel: Kernel;
const netns = (): string => `/run/netns/${namespace.name}`;

beforeAll(async () => {
  namespace = await Namespace.create("programs");
  kernel = await openKernel({ netns: netns() });
});
afterAll(async () => {
  await kernel.close();
  await namespace.destroy();
});

/** Returns the names of programs that committed while `action` ran. */
async function committers(action: () => Promise<unknown>): Promise<Set<string | undefined>> {
  const batches: ChangeBatch[] = [];
  const listener = await openKernel({ netns: netns() });
  const monitor = await listener.monitor({
    onBatch: (batch) => void batches.push(batch),
    onLost: () => undefined,
    onError: () => undefined,
  });
  await action();
  await expect.poll(() => batches.length).toBeGreaterThan(0);
  await monitor.close();
  await listener.close();
  return new Set(batches.map((batch) => batch.process?.name));
}

test("a commit carries the program's name: its file's, its title, or the option", async () => {
  const directory = path.join(ROOT, "build", "library");
  mkdirSync(directory, { recursive: true });
  const file = path.join(directory, "ban-list-keeper.mjs");
  writeFileSync(
    file,
    `import { openKernel, Table } from "@nft-proxier/nft";
     const [netns, title, programName] = process.argv.slice(2);
     if (title) process.title = title;
     const kernel = await openKernel({ netns, ...(programName && { programName }) });
     await new Table(kernel, { family: "ip", name: "named" }).destroy();
     const table = new Table(kernel, { family: "ip", name: "named" });
     table.chain({ chain: "c", rules: [] });
     await table.apply();
     await table.destroy();
     await kernel.close();`,
  );
  const run = (...args: string[]): Promise<unknown> => namespace.mustRun([process.execPath, file, netns(), ...args]);
  expect(await committers(() => run())).toEqual(new Set(["ban-list-keeper"]));
  expect(await committers(() => run("keeper"))).toEqual(new Set(["keeper"]));
  expect(await committers(() => run("", "mine"))).toEqual(new Set(["mine"]));
  await expect(openKernel({ programName: "a-name-of-16-by." })).rejects.toBeInstanceOf(FieldError);
});

test("a dump of elements includes the objects that they refer to, and comments", async () => {
  await namespace.mustRun([
    "nft",
    `add table ip theirs; add counter ip theirs c1; add counter ip theirs c2;
     add map ip theirs m { type ipv4_addr : counter; };
     add element ip theirs m { 192.0.2.2 : "c2", 192.0.2.1 : "c1" };
     add set ip theirs s { type ipv4_addr; flags timeout; };
     add element ip theirs s { 192.0.2.1, 192.0.2.2 timeout 1h comment "a ban" };`,
  ]);
  const sets = new Map((await kernel.sets(REF)).map((set) => [set.set, set]));
  const told = async (name: string): Promise<unknown> => {
    const { bytes, count, extras } = await kernel.elements(REF, sets.get(name) as SetInfo);
    const stride = bytes.length / count;
    const all = extras?.map(({ record, object, userdata }) => [
      [...bytes.subarray(record * stride, record * stride + 4)].join("."),
      object,
      userdata && Buffer.from(userdata.subarray(2)).toString(),
    ]);
    // The kernel's hash has no order.
    return all?.toSorted(([a = ""], [b = ""]) => a.localeCompare(b));
  };
  expect(await told("m")).toEqual([
    ["192.0.2.1", "c1", undefined],
    ["192.0.2.2", "c2", undefined],
  ]);
  expect(await told("s")).toEqual([["192.0.2.2", undefined, "a ban\0"]]);
  // Both can be written back.
  for (const set of ["s", "m"]) {
    const before = await told(set);
    const elements = await kernel.elements(REF, sets.get(set) as SetInfo);
    await kernel.commit([
      { op: "flush", kind: "elements", ...REF, set },
      { op: "add", kind: "elements", ...REF, set, elements },
    ]);
    expect(await told(set)).toEqual(before);
  }
  await new Table(kernel, { family: "ip", name: "theirs" }).destroy();
});

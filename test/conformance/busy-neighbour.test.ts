/** Effects on a watched table while other tables of the namespace change all the time, or in large transactions. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import { NftKernel } from "../../src/nft/kernel/nft-kernel.js";
import type { ElementBatch, Op } from "../../src/nft/kernel/kernel.js";
import { Table } from "../../src/nft/engine-exports.js";
import type { ElementSet } from "../../src/nft/elements/element-set.js";
import { TableWatch } from "../../src/nft/table-watch.js";
import { podsOf } from "../bench/cluster.js";
import { eventually } from "../lab/eventually.js";
import { makeProxier, putService } from "../unit/proxier/support/proxier.js";
import { makeNamespace, type Namespace } from "../support/real-kernel.ts";

const OWN = { family: "ip", table: "own" } as const;
const THEIRS = { family: "ip", table: "theirs" } as const;
/** A dump of this many elements takes long enough for several foreign transactions. */
const ELEMENTS = 100_000;

let namespace: Namespace;
let kernel: NftKernel;
let other: NftKernel;
/** Cleanup after each test, in this order. */
const closers: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  namespace = await makeNamespace();
  kernel = await NftKernel.open({ netns: namespace.path });
  other = await NftKernel.open({ netns: namespace.path });
  await other.commit([
    { op: "add", kind: "table", ...THEIRS },
    { op: "add", kind: "set", ...THEIRS, set: "s", flags: 0, keyType: 7, keyLen: 4 },
  ]);
});
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});
afterAll(async () => {
  await kernel.close();
  await other.close();
  await namespace.remove();
});

function addressBytes(count: number, from = 0x0a000000): Uint8Array {
  const bytes = Buffer.alloc(count * 4);
  for (let i = 0; i < count; i++) bytes.writeUInt32BE(from + i, i * 4);
  return bytes;
}
const keys = (bytes: Uint8Array): ElementBatch => ({ count: bytes.length / 4, keyLen: 4, dataLen: 0, bytes });
const gone = (index: number): Op => ({
  op: "delete",
  kind: "elements",
  ...OWN,
  set: "s",
  elements: keys(addressBytes(1, 0x0a000000 + index)),
});
let addedElsewhere = 0;
const elsewhere = (): Op => ({
  op: "add",
  kind: "elements",
  ...THEIRS,
  set: "s",
  elements: keys(addressBytes(1, 0x0b000000 + addedElsewhere++)),
});

interface Seen {
  dumps: number;
  readonly expected: (number | undefined)[];
}

interface Watched {
  readonly table: Table;
  readonly set: ElementSet;
  readonly lost: readonly string[];
  /** Counts from now on; the hooks run after a dump and before a commit. */
  count(hooks?: { afterDump?: () => Promise<unknown>; beforeCommit?: () => Promise<unknown> }): Seen;
}

/** A watched table, written with this many addresses in one set. */
async function watched(count: number): Promise<Watched> {
  const table = new Table(kernel, { family: "ip", name: OWN.table });
  const set = table.packedSet({ set: "s", key: ["ipv4_addr"], size: 2 * count });
  const all = addressBytes(count);
  for (let i = 0; i < count; i++) set.put(all.subarray(4 * i, 4 * i + 4));
  const lost: string[] = [];
  const watch = new TableWatch(kernel, [table], {
    changed: () => undefined,
    lost: (reason) => lost.push(reason),
    failed: () => undefined,
  });
  await watch.open();
  closers.push(
    () => watch.close(),
    () => table.destroy(),
  );
  await table.apply();
  const elements = kernel.elements.bind(kernel);
  const commit = kernel.commit.bind(kernel);
  return {
    table,
    set,
    lost,
    count: ({ afterDump, beforeCommit } = {}) => {
      closers.unshift(() => Promise.resolve(Object.assign(kernel, { elements, commit })));
      const seen: Seen = { dumps: 0, expected: [] };
      kernel.elements = async (ref, info) => {
        const dump = await elements(ref, info);
        seen.dumps++;
        await afterDump?.();
        return dump;
      };
      kernel.commit = async (ops, options) => {
        await beforeCommit?.();
        seen.expected.push(options?.expectGeneration);
        return commit(ops, options);
      };
      return seen;
    },
  };
}

test("a large table is read once while another process keeps changing other tables", async () => {
  const own = await watched(ELEMENTS);
  const end = new AbortController();
  let commits = 0;
  const busy = (async (): Promise<void> => {
    for (; !end.signal.aborted; commits++) {
      await other.commit([elsewhere()]);
      await sleep(5);
    }
  })();
  closers.unshift(() => {
    end.abort();
    return busy;
  });
  const before = commits;
  // The dump alone takes several of the other process's transactions. On a fast machine, wait for them before it counts as read.
  const seen = own.count({ afterDump: () => eventually(() => expect(commits - before).toBeGreaterThan(2)) });
  own.table.invalidate("test");
  await own.table.load();
  expect(seen.dumps).toBe(1);
  end.abort();
  await busy;
  // Everything read is from one moment.
  own.table.invalidate("test");
  expect(await own.table.apply()).toMatchObject({ transactions: 0, resynced: "test" });
  expect(own.lost).toEqual([]);
});

test("a table that changes while it is read is read again", async () => {
  const own = await watched(1000);
  let once = true;
  const seen = own.count({
    afterDump: async () => {
      if (once) await other.commit([elsewhere(), gone(7)]);
      once = false;
    },
  });
  own.table.invalidate("test");
  const result = await own.table.apply();
  expect(result).toMatchObject({ transactions: 1, drift: { changes: ["set s: elements 1 gone"] } });
  expect(result.operations.element).toEqual({ add: 1, delete: 0 });
  expect(seen.dumps).toBe(2);
  expect(await own.table.check()).toBe("same");
});

test("a transaction that became stale through another table's change is sent again without another read", async () => {
  const own = await watched(1000);
  const seen = own.count({ beforeCommit: () => other.commit([elsewhere()]) });
  own.table.invalidate("test");
  own.set.delete(addressBytes(1));
  expect(await own.table.apply()).toMatchObject({ transactions: 1, resynced: "test" });
  expect(seen).toEqual({ dumps: 1, expected: [expect.any(Number), undefined] });
});

test("a transaction that became stale through a change of our own table waits for another read", async () => {
  const own = await watched(1000);
  let once = true;
  const seen = own.count({
    beforeCommit: async () => {
      if (once) await other.commit([gone(7)]);
      once = false;
    },
  });
  own.table.invalidate("test");
  own.set.delete(addressBytes(1));
  const { operations } = await own.table.apply();
  expect(operations.element).toEqual({ add: 1, delete: 1 });
  expect(seen.dumps).toBe(2);
});

test("chains are requested by name whatever other tables contain, and all chains only if there may be others", async () => {
  const own = await watched(10);
  own.table.chain({ chain: "a", rules: [] });
  own.table.chain({ chain: "b", rules: [] });
  await own.table.apply();
  const asked: (readonly string[] | undefined)[] = [];
  const chains = kernel.chains.bind(kernel);
  closers.unshift(() => Promise.resolve(Object.assign(kernel, { chains })));
  kernel.chains = (ref, names) => {
    asked.push(names);
    return chains(ref, names);
  };
  await other.commit([{ op: "add", kind: "chain", ...THEIRS, chain: "theirs" }]);
  own.table.invalidate("test");
  expect(await own.table.apply()).toMatchObject({ transactions: 0 });
  expect(asked.splice(0)).toEqual([["a", "b"]]);
  // Here the foreign chain is in our table, so reading the known chains is not enough.
  await other.commit([{ op: "add", kind: "chain", ...OWN, chain: "theirs" }]);
  own.table.invalidate("test");
  expect((await own.table.apply()).operations.chain).toEqual({ add: 0, delete: 1 });
  expect(asked.splice(0)).toEqual([["a", "b"], undefined]);
  await other.commit([{ op: "delete", kind: "chain", ...OWN, chain: "b" }]);
  own.table.invalidate("test");
  expect((await own.table.apply()).operations.chain).toEqual({ add: 1, delete: 0 });
  expect(asked).toEqual([["a", "b"]]);
});

test("an element that a large foreign transaction deletes just before a large one of ours is restored", async () => {
  const repairs: string[] = [];
  const proxier = makeProxier(kernel, {
    watch: true,
    observers: [{ repaired: ({ found }) => repairs.push(...found) }],
  });
  let services = 0;
  /** Just enough for a transaction during which the monitor leaves its group. */
  const serve = (): void => {
    for (let i = 0; i < 110; i++, services++) {
      putService(proxier, services, podsOf(services, 10));
    }
  };
  // Enough that the map has room for all further ones: a map that is recreated for its size needs no repair.
  for (let i = 0; i < 5; i++) serve();
  proxier.synced();
  expect((await proxier.sync()).ok).toBe(true);
  const ref = { family: "ip", table: "kube-proxy" } as const;
  const set = (await kernel.sets(ref)).find((info) => info.set === "services");
  if (set === undefined) throw new Error("no services");
  const { keyLen, bytes } = await kernel.elements(ref, set);
  const victim: ElementBatch = { count: 1, keyLen, dataLen: 0, bytes: bytes.slice(0, keyLen) };
  const commit = kernel.commit.bind(kernel);
  closers.push(
    () => proxier.stop(),
    () => Promise.resolve(Object.assign(kernel, { commit })),
  );
  for (const round of [1, 2, 3]) {
    let foreign: Promise<unknown> | undefined;
    kernel.commit = async (ops, options) => {
      // Chains may be written first in a small transaction, during which the monitor stays.
      if (foreign === undefined && ops.some((op) => op.kind === "elements" && op.op === "add")) {
        const { id } = await kernel.generation();
        const load = keys(addressBytes(60_000, 0x0c000000 + round * 60_000));
        foreign = other.commit([
          { op: "add", kind: "elements", ...THEIRS, set: "s", elements: load },
          { op: "delete", kind: "elements", ...ref, set: set.set, elements: victim },
        ]);
        // The kernel raises the number first and sends the events afterwards.
        for (let now = id; now === id; now = (await kernel.generation()).id);
      }
      return commit(ops, options);
    };
    serve();
    expect((await proxier.sync()).ok).toBe(true);
    await foreign;
    await expect.poll(async () => (await kernel.elements(ref, set)).count).toBe(services);
    await expect.poll(() => repairs).toEqual(Array.from({ length: round }, () => "set services: elements 1 gone"));
  }
});

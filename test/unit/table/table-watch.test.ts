/** A watched table while events, reads and transactions overlap or fail. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { KernelError } from "../../../src/nft/kernel/errors.js";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { Monitor, MonitorHandlers, Op } from "../../../src/nft/kernel/kernel.js";
import { Table } from "../../../src/nft/engine-exports.js";
import { TableWatch, type WatchOptions } from "../../../src/nft/table-watch.js";
import { snapshot } from "../../support/snapshot.ts";
import { indexed, operations, OWN, serviceTable, type ServiceTable } from "../../conformance/table/build.js";

let kernel: FakeKernel;
let other: FakeKernel;
let own: ServiceTable;
let watch: TableWatch;
let heard: string[];
let failures: { error: unknown; againMs: number }[];

function start(options: WatchOptions = {}): Promise<void> {
  watch = new TableWatch(
    kernel,
    [own.table],
    {
      changed: (_table, { changes }) => void heard.push(...changes),
      lost: (reason) => void heard.push(reason),
      failed: (error, againMs) => void failures.push({ error, againMs }),
    },
    options,
  );
  return watch.open();
}

beforeEach(async () => {
  kernel = new FakeKernel();
  other = kernel.asOther();
  own = serviceTable(kernel);
  heard = [];
  failures = [];
  await start();
  own.service(1, 2);
  await own.table.apply();
});
afterEach(() => watch.close());

const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const gone = (index = 0): Op => ({
  op: "delete",
  kind: "elements",
  ...OWN,
  set: "endpoints",
  elements: { count: 1, keyLen: 16, dataLen: 0, bytes: indexed(1, index) },
});
const deleteTable: Op = { op: "delete", kind: "table", ...OWN };
const foreignChain: Op = { op: "add", kind: "chain", ...OWN, chain: "theirs" };

/** Sets that are dumped from now on. */
function dumped(): string[] {
  const names: string[] = [];
  const elements = kernel.elements.bind(kernel);
  kernel.elements = (ref, info) => {
    names.push(info.set);
    return elements(ref, info);
  };
  return names;
}

describe("the extent of a read", () => {
  it("a chain needs the elements that lead to chains, an element those of one set, and a deleted table none", async () => {
    const names = dumped();
    await other.commit([foreignChain]);
    await settle();
    expect(operations(await own.table.apply())).toBe("chain -1");
    expect(names.splice(0)).toEqual(["vips"]);
    await other.commit([gone()]);
    await settle();
    expect(operations(await own.table.apply())).toBe("element +1");
    expect(names.splice(0)).toEqual(["endpoints"]);
    await other.commit([deleteTable]);
    await settle();
    await own.table.apply();
    expect(names).toEqual([]);
  });
});

describe("overlapping events and reads", () => {
  it("a change during the read of another is in it, or is repaired next", async () => {
    const wanted = await snapshot(kernel);
    await other.commit([gone(0)]);
    await settle();
    kernel.beforeNext("dump sets", () => other.commit([gone(1), foreignChain]));
    await own.table.apply();
    await settle();
    await own.table.apply();
    expect(await snapshot(kernel)).toEqual(wanted);
    expect(await own.table.apply()).toMatchObject({ transactions: 0 });
  });

  it("a change between the read and the transaction causes another read", async () => {
    const wanted = await snapshot(kernel);
    own.table.invalidate("test");
    await other.commit([gone(0)]);
    kernel.beforeNext("commit", () => other.commit([gone(1)]));
    expect(operations(await own.table.apply())).toBe("element +2");
    expect(await snapshot(kernel)).toEqual(wanted);
    await settle();
    // The event came after the read that saw the change.
    expect(own.table.invalidated).toBe(false);
  });

  it("a change that a full read has already seen is ignored when its event arrives", async () => {
    const { table } = own;
    await other.commit([gone(0)]);
    const { id: generation } = await kernel.generation();
    await settle();
    table.invalidate("asked");
    await table.apply();
    const events = [{ action: "delete", kind: "elements", ...OWN, name: "endpoints", count: 1 }] as const;
    const late = { generation, portId: other.portId, events };
    expect(table.notice(late)).toEqual([]);
    expect(table.invalidated).toBe(false);
    expect(table.notice({ ...late, generation: generation + 2 })).toHaveLength(1);
    expect(table.invalidated).toBe(true);
  });

  it("our own transaction may follow a foreign one that was not reported yet", async () => {
    await other.commit([gone(0)]);
    own.service(2, 1);
    const [result] = await Promise.all([own.table.apply({ repair: false }), settle()]);
    expect(operations(result)).toContain("element +2");
    expect(own.table.invalidated).toBe(true);
    expect(operations(await own.table.apply())).toBe("element +1");
  });

  it("our own transaction may fail because the table was just deleted", async () => {
    const { service, table } = own;
    service(2, 1);
    kernel.beforeNext("commit", () => other.commit([deleteTable]));
    const result = await table.apply();
    expect(result.drift?.tableDeleted).toBe(true);
    expect(operations(result)).toBe("table +1 chain +4 rule +4 set +2 element +5");
    await settle();
    expect(await table.apply()).toMatchObject({ transactions: 0 });
  });

  it("a change that is reverted before the read costs no transaction", async () => {
    await other.commit([foreignChain]);
    await other.commit([{ op: "delete", kind: "chain", ...OWN, chain: "theirs" }]);
    await settle();
    const result = await own.table.apply();
    expect(result).toMatchObject({ transactions: 0, resynced: "another process changed the table" });
    expect(result.drift).toBeUndefined();
  });
});

describe("our own transaction with a lost reply", () => {
  it("is not mistaken for another process's when its events arrive", async () => {
    own.service(2, 2);
    kernel.loseReply();
    const result = await own.table.apply();
    await settle();
    expect(result.drift).toBeUndefined();
    expect(heard).toEqual([]);
    expect(own.table.invalidated).toBe(false);
  });

  it("is distinguished from a foreign one at the same time", async () => {
    const { table, service } = own;
    service(2, 2);
    kernel.loseReply();
    kernel.beforeNext("commit", () => other.commit([gone(0)]));
    expect(operations(await table.apply())).toBe("element +1");
    await settle();
    expect(await table.apply()).toMatchObject({ transactions: 0 });
  });
});

describe("missing events", () => {
  it("lost events cause a full read", async () => {
    const names = dumped();
    kernel.loseEvents();
    await settle();
    expect(heard).toEqual(["events were lost"]);
    expect(await own.table.apply()).toMatchObject({ transactions: 0, resynced: "events were lost" });
    expect(names.toSorted()).toEqual(["endpoints", "vips"]);
  });

  it("a monitor that ends is opened again, and missed changes are found", async () => {
    await watch.close();
    await start({ firstWaitMs: 1 });
    const { promise: missed, resolve: listenAgain } = Promise.withResolvers<void>();
    const monitor = kernel.monitor.bind(kernel);
    kernel.monitor = async (handlers, options) => {
      await missed;
      return monitor(handlers, options);
    };
    kernel.breakMonitors(new Error("broken"));
    await settle();
    expect(failures).toMatchObject([{ error: { message: "broken" }, againMs: 1 }]);
    await other.commit([gone(0)]);
    listenAgain();
    await expect.poll(() => heard).toEqual(["events were not read for a while"]);
    expect(operations(await own.table.apply())).toBe("element +1");
    await other.commit([foreignChain]);
    await settle();
    expect(heard.at(-1)).toBe("chain theirs added or changed");
  });

  it("a monitor that cannot be opened is retried with backoff", async () => {
    await watch.close();
    const monitor = kernel.monitor.bind(kernel);
    let refusals = 3;
    kernel.monitor = (handlers: MonitorHandlers): Promise<Monitor> =>
      refusals-- > 0 ? Promise.reject(new KernelError("system", "no", { action: "monitor" })) : monitor(handlers);
    await start({ firstWaitMs: 1, longestWaitMs: 2 });
    await expect.poll(() => heard).toEqual(["events were not read for a while"]);
    expect(failures.map(({ againMs }) => againMs)).toEqual([1, 2, 2]);
    kernel.breakMonitors(new Error("again"));
    await settle();
    expect(failures.at(-1)?.againMs).toBe(1);
  });

  it("nothing is received or tried after close", async () => {
    await watch.close();
    kernel.breakMonitors(new Error("broken"));
    await other.commit([foreignChain]);
    await settle();
    expect([heard, failures]).toEqual([[], []]);
  });
});

describe("a check while the table is being written", () => {
  it("describes one moment: no change of ours is mistaken for a difference", async () => {
    let applies = 0;
    kernel.setLatency(async (action) => {
      if (action !== "dump elements" || applies >= 5) return;
      applies++;
      own.service(10 + applies, 2);
      void own.table.apply();
      await settle();
    });
    expect(await own.table.check()).toBe("same");
    expect(applies).toBeGreaterThan(2);
    kernel.setLatency(undefined);
    await own.table.apply();
    expect(await own.table.check()).toBe("same");
  });

  it("describes one moment even if there are only rules", async () => {
    const table = new Table(kernel, { family: "ip", name: "rules" });
    table.chain({ chain: "a", rules: [] });
    await table.apply();
    let changed = false;
    kernel.beforeNext("dump rules", async () => {
      changed = true;
      table.chain({ chain: "b", rules: [] });
      await table.apply();
    });
    expect(await table.check()).toBe("same");
    expect(changed).toBe(true);
  });

  it("delays an apply by the elements of one set at most", async () => {
    for (const set of ["a", "b", "c"]) own.table.packedSet({ set, key: ["ipv4_addr"] });
    await own.table.apply();
    let dumps = 0;
    let waiting = 0;
    const waited: number[] = [];
    const applies: Promise<void>[] = [];
    kernel.setLatency(async (action) => {
      if (action !== "dump elements" || applies.length >= 30) return;
      dumps++;
      if (waiting > 0) return;
      waiting++;
      const before = dumps;
      own.service(10 + applies.length, 2);
      applies.push(
        own.table
          .apply()
          .then(() => void waited.push(dumps - before))
          .finally(() => waiting--),
      );
      await settle();
    });
    for (let i = 0; i < 4; i++) expect(await own.table.check()).toBe("same");
    await Promise.all(applies);
    expect(applies.length).toBeGreaterThan(8);
    expect(Math.max(...waited)).toBeLessThanOrEqual(1);
  });

  it("waits for an apply in progress", async () => {
    const { promise: noted, resolve: goOn } = Promise.withResolvers<undefined>();
    const commit = kernel.commit.bind(kernel);
    kernel.commit = async (ops, options) => {
      const result = await commit(ops, options);
      await noted;
      return result;
    };
    own.service(3, 2);
    const apply = own.table.apply();
    await settle();
    const check = own.table.check();
    for (let i = 0; i < 50; i++) await settle();
    goOn(undefined);
    expect(await check).toBe("same");
    expect(await apply).toMatchObject({ transactions: 1 });
  });

  it("ends after its current part when the table is closed", async () => {
    const names = dumped();
    kernel.setLatency((action) => {
      if (action === "dump elements") own.table.close();
    });
    await expect(own.table.check()).rejects.toMatchObject({ name: "TableError", code: "closed" });
    expect(names).toHaveLength(1);
  });

  it("reads nothing if the next apply will read anyway", async () => {
    await other.commit([foreignChain]);
    await settle();
    const actions: string[] = [];
    kernel.setLatency((action) => void actions.push(action));
    expect(await own.table.check()).toBe("different");
    expect(actions).toEqual([]);
  });

  it("fails like a read", async () => {
    kernel.interruptDumps(100);
    await expect(own.table.check()).rejects.toMatchObject({ name: "TableError", code: "interrupted" });
  });
});

/**
 * When the connection tracking table is reconciled, with which entries, and how failures are handled. On the table in
 * memory.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { FakeConntrack } from "../../fakes/fake-conntrack.ts";
import { FormerTargets } from "../../../src/conntrack/reconcile/former-targets.js";
import { ConntrackService, type ConntrackServiceOptions } from "../../../src/conntrack/conntrack-service.js";
import type { ReconcileReport } from "../../../src/conntrack/reconcile/reconciler.js";
import type { NewConntrackEntry } from "../../../src/nft/conntrack/conntrack-table.js";
import { EVENTUALLY_MS } from "../../lab/eventually.ts";
import { newModel, service, slice } from "../model/objects.js";
import { keptIn } from "../../support/log.ts";

const SETTLE_MS = 10;
const RETRY_MS = 20;

const running: ConntrackService[] = [];
// Follow-up passes and retries run when a test advances the clock.
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((one) => one.stop()));
  vi.useRealTimers();
});

function setUp(options: Partial<ConntrackServiceOptions> = {}) {
  const lines: Record<string, unknown>[] = [];
  const log = keptIn(lines);
  const table = new FakeConntrack();
  const { model } = newModel({ trackRemovals: true });
  const reports: ReconcileReport[] = [];
  const conntrack = new ConntrackService({
    table,
    model,
    families: ["ip", "ip6"],
    localAddresses: () => Promise.resolve([{ family: "ip", address: "192.0.2.10" }]),
    log,
    observers: [{ reconciled: (report) => reports.push(report) }],
    timing: { settleMs: SETTLE_MS, firstRetryMs: RETRY_MS },
    ...options,
  });
  running.push(conntrack);
  const waiting = { ip: new Set<string>(), ip6: new Set<string>() };
  /** Like the proxier: takes the changes, writes, and reports which families the kernel accepted. */
  const sync = (...families: ("ip" | "ip6")[]): void => {
    for (const name of model.takeDirty().services) for (const set of Object.values(waiting)) set.add(name);
    for (const family of ["ip", "ip6"] as const) {
      const ok = families.length === 0 || families.includes(family);
      conntrack.synced({ family, ok, services: ok ? [...waiting[family]] : [] });
      if (ok) waiting[family].clear();
    }
  };
  conntrack.nodePortAddresses("ip", "all");
  const dumps = () => table.calls.filter(({ action }) => action === "dump").map(({ filter }) => filter);
  const settled = async (): Promise<void> => {
    await conntrack.idle();
    // Also run the follow-ups of follow-ups.
    for (let round = 0; round < 3; round++) {
      await vi.advanceTimersByTimeAsync(5 * SETTLE_MS);
      await conntrack.idle();
    }
    table.calls.length = 0;
    reports.length = 0;
  };
  return { table, model, conntrack, sync, dumps, reports, lines, settled };
}

type World = ReturnType<typeof setUp>;

/** Adds UDP service "default/sN" at 10.0.0.N with one endpoint. */
function put({ model }: World, n: number, endpoint = `10.1.0.${n}`): void {
  const port = { port: 53, protocol: "UDP" };
  model.upsertService(service(`s${n}`, { clusterIP: `10.0.0.${n}`, ports: [port] }));
  model.upsertSlice(slice(`s${n}-1`, `s${n}`, [endpoint], { ports: [{ port: 53, protocol: "UDP" }] }));
}

/** Service 1 is written, and all entries are reconciled. */
async function settledWorld(): Promise<World> {
  const world = setUp();
  put(world, 1);
  world.sync();
  await world.settled();
  return world;
}

let nextPort = 10_000;
function udp(to: string, from: string): NewConntrackEntry {
  const client = { source: "198.51.100.1", sourcePort: nextPort++ };
  return {
    family: "ip",
    original: { ...client, protocol: 17, destination: to, destinationPort: 53 },
    reply: {
      source: from,
      sourcePort: 53,
      protocol: 17,
      destination: client.source,
      destinationPort: client.sourcePort,
    },
    timeout: 600,
  };
}
const left = ({ table }: World) =>
  table.entries().map(({ original, reply }) => `${original.destination} ${reply.source}`);

async function until(what: () => boolean): Promise<void> {
  const start = performance.now();
  while (!what()) {
    if (performance.now() - start > EVENTUALLY_MS) throw new Error(`it did not happen: ${what.toString()}`);
    await vi.advanceTimersByTimeAsync(2);
    // The pause after a pass uses only the real clock.
    await sleep(1);
  }
}

describe("after a write", () => {
  test("the first pass reads everything, and touches no flow that is in order", async () => {
    const world = setUp();
    for (const n of [1, 2]) put(world, n);
    world.table.add(udp("10.0.0.1", "10.1.0.1"));
    world.table.add(udp("10.0.0.2", "10.9.9.9"));
    world.table.add(udp("10.0.0.77", "10.9.9.9"));
    world.sync();
    expect(world.dumps()).toEqual([]);
    await world.conntrack.idle();
    expect(left(world)).toEqual(["10.0.0.1 10.1.0.1", "10.0.0.77 10.9.9.9"]);
    expect(world.dumps()).toEqual([{ family: "ip", protocol: 17 }]);
  });

  test("later passes use the kernel's filter and read only the services that changed", async () => {
    const world = setUp();
    for (const n of [1, 2]) put(world, n);
    world.sync();
    await world.settled();
    for (const n of [1, 2]) world.table.add(udp(`10.0.0.${n}`, `10.1.0.${n}`));
    world.table.add(udp("10.0.0.2", "10.9.9.9"));
    put(world, 1, "10.1.1.1");
    world.sync();
    await world.conntrack.idle();
    expect(left(world)).toEqual(["10.0.0.2 10.1.0.2", "10.0.0.2 10.9.9.9"]);
    expect(world.dumps()).toEqual([
      { family: "ip", protocol: 17, original: { destination: "10.0.0.1", destinationPort: 53 } },
    ]);
    expect(world.reports).toMatchObject([
      { family: "ip", mode: "few", entries: 1, deleted: 1, reasons: { "endpoint-gone": 1 } },
    ]);
  });

  test("idle() also waits for a family whose pass begins while the other's ends", async () => {
    const families: string[] = [];
    const world = setUp({
      observers: [
        {
          reconciled: ({ family }) => {
            families.push(family);
            if (family === "ip6") world.sync("ip");
          },
        },
      ],
    });
    put(world, 1);
    world.sync("ip6");
    await world.conntrack.idle();
    expect(families).toEqual(["ip6", "ip"]);
  });

  test("services with nothing to reconcile cost nothing", async () => {
    const world = setUp();
    world.sync();
    await world.settled();
    world.model.upsertService(service("web"));
    world.model.upsertSlice(slice("web-1", "web", ["10.1.0.1"]));
    world.sync();
    await world.conntrack.idle();
    expect(world.table.calls).toEqual([]);
  });

  test("one address with many ports needs one dump, and a node port one without an address", async () => {
    const world = setUp();
    world.sync();
    await world.settled();
    const ports = [53, 54, 55].map((port) => ({ name: `p${port}`, port, protocol: "UDP" }));
    ports.push({ name: "sctp", port: 53, protocol: "SCTP", nodePort: 30053 } as never);
    world.model.upsertService(service("dns", { type: "NodePort", ports, externalIPs: ["192.0.2.1"] }));
    world.sync();
    await world.conntrack.idle();
    expect(world.dumps()).toEqual([
      { family: "ip", original: { destination: "10.0.0.1" } },
      { family: "ip", original: { destination: "192.0.2.1" } },
      { family: "ip", protocol: 132, original: { destinationPort: 30053 } },
    ]);
  });

  test("a service with several addresses is read with one dump for each", async () => {
    const world = setUp();
    const ports = [{ port: 53, protocol: "UDP", nodePort: 30053 }];
    const spec = { type: "NodePort", ports, externalIPs: ["192.0.2.1"] };
    world.model.upsertService(service("s1", { clusterIP: "10.0.0.1", ...spec }));
    const sliceOf = (...endpoints: string[]) =>
      slice("s1-1", "s1", endpoints, { ports: [{ port: 53, protocol: "UDP" }] });
    world.model.upsertSlice(sliceOf("10.1.0.1", "10.1.0.2"));
    world.sync();
    await world.settled();
    for (const vip of ["10.0.0.1", "192.0.2.1"]) for (const n of [1, 2]) world.table.add(udp(vip, `10.1.0.${n}`));
    world.table.add(udp("10.0.0.2", "10.1.0.1"));
    world.model.upsertSlice(sliceOf("10.1.0.3", "10.1.0.2"));
    world.sync();
    await world.conntrack.idle();
    expect(left(world)).toEqual(["10.0.0.1 10.1.0.2", "192.0.2.1 10.1.0.2", "10.0.0.2 10.1.0.1"]);
    expect(world.dumps().map((filter) => filter?.original?.destination)).toEqual(["10.0.0.1", "192.0.2.1", undefined]);
  });

  test("a service that changed together with its endpoints is checked completely", async () => {
    const world = setUp();
    const put2 = (externalIPs: string[], endpoint: string) => {
      world.model.upsertService(service("s1", { externalIPs, ports: [{ port: 53, protocol: "UDP" }] }));
      world.model.upsertSlice(slice("s1-1", "s1", [endpoint], { ports: [{ port: 53, protocol: "UDP" }] }));
    };
    put2(["192.0.2.1"], "10.1.0.1");
    world.sync();
    await world.settled();
    world.table.add(udp("192.0.2.2", "192.0.2.2"));
    put2(["192.0.2.1"], "10.1.0.2");
    world.sync("ip6");
    put2(["192.0.2.1", "192.0.2.2"], "10.1.0.2");
    world.sync();
    await world.conntrack.idle();
    expect(left(world)).toEqual([]);
  });

  test("many changes are combined in one pass over the family, limited to their entries", async () => {
    const world = setUp();
    put(world, 30);
    world.sync();
    await world.settled();
    world.table.add(udp("10.0.0.30", "10.9.9.9"));
    for (let n = 1; n <= 20; n++) {
      put(world, n);
      world.table.add(udp(`10.0.0.${n}`, "10.9.9.9"));
    }
    world.table.add(udp("10.0.0.3", "10.1.0.3"));
    world.sync();
    await world.conntrack.idle();
    expect(left(world)).toEqual(["10.0.0.30 10.9.9.9", "10.0.0.3 10.1.0.3"]);
    expect(world.dumps()).toEqual([{ family: "ip", protocol: 17 }]);
  });

  test("all addresses of the node are checked except loopback, where a node port's number belongs to a local program", async () => {
    const local = ["127.0.0.1", "127.0.0.53", "192.0.2.10"].map((address) => ({ family: "ip" as const, address }));
    const world = setUp({ localAddresses: () => Promise.resolve(local) });
    const ports = [{ port: 53, protocol: "UDP", nodePort: 30053 }];
    world.model.upsertService(service("s1", { type: "NodePort", clusterIP: "10.0.0.1", ports }));
    world.model.upsertSlice(slice("s1-1", "s1", ["10.1.0.1"], { ports: [{ port: 53, protocol: "UDP" }] }));
    const toNodePort = (destination: string): NewConntrackEntry => {
      const { original, ...entry } = udp(destination, destination);
      return { ...entry, original: { ...original, destinationPort: 30053 } };
    };
    for (const { address } of local) world.table.add(toNodePort(address));
    world.sync();
    await world.settled();
    expect(left(world)).toEqual(["127.0.0.1 127.0.0.1", "127.0.0.53 127.0.0.53"]);
  });

  test("a family whose write failed waits for a successful one", async () => {
    const world = await settledWorld();
    world.table.add(udp("10.0.0.1", "10.1.0.1"));
    put(world, 1, "10.1.1.1");
    world.sync("ip6");
    await world.conntrack.idle();
    expect(left(world)).toEqual(["10.0.0.1 10.1.0.1"]);
    world.sync("ip");
    await world.conntrack.idle();
    expect(left(world)).toEqual([]);
  });
});

describe("removed addresses", () => {
  test("a deleted service's flows are deleted, except those that another process translates since, and the service is forgotten", async () => {
    const world = await settledWorld();
    world.table.add(udp("10.0.0.1", "10.1.0.1"));
    world.table.add(udp("10.0.0.1", "172.20.0.1"));
    world.model.removeService("default/s1");
    world.model.removeSlice("default/s1-1");
    world.sync();
    await world.settled();
    expect(left(world)).toEqual(["10.0.0.1 172.20.0.1"]);
    world.table.add(udp("10.0.0.1", "10.1.0.1"));
    put(world, 2);
    world.sync();
    await world.settled();
    expect(left(world)).toEqual(["10.0.0.1 172.20.0.1", "10.0.0.1 10.1.0.1"]);
  });

  test("entries that only the replaced table explains are deleted in the first pass, and those of services stay", async () => {
    const world = setUp();
    put(world, 1);
    world.table.add(udp("10.0.0.1", "10.1.0.1"));
    world.table.add(udp("10.0.0.9", "10.1.0.9"));
    world.table.add(udp("10.0.0.8", "10.1.0.8"));
    const found = (address: string) => ({ family: "ip" as const, address, protocol: "UDP" as const, port: 53 });
    world.conntrack.found([found("10.0.0.1"), found("10.0.0.9")]);
    world.sync();
    await world.conntrack.idle();
    expect(left(world)).toEqual(["10.0.0.1 10.1.0.1", "10.0.0.8 10.1.0.8"]);
  });
});

test("an entry that a packet in flight creates after the pass is found by the next pass", async () => {
  const world = await settledWorld();
  put(world, 1, "10.1.1.1");
  world.sync();
  await world.conntrack.idle();
  world.table.add(udp("10.0.0.1", "10.1.0.1"));
  await until(() => left(world).length === 0);
});

test("changes during a pass are combined in one more pass", async () => {
  const world = setUp({ timing: { settleMs: 60_000 } });
  for (const n of [1, 2, 3]) put(world, n);
  world.sync();
  await world.conntrack.idle();
  world.table.calls.length = 0;
  let go = (): void => undefined;
  const gate = new Promise<void>((resolve) => (go = resolve));
  world.table.setLatency(() => gate);
  put(world, 1, "10.1.1.1");
  world.sync();
  await until(() => world.dumps().length === 1);
  for (const endpoint of ["10.1.1.2", "10.1.1.3"]) {
    put(world, 1, endpoint);
    put(world, 2, endpoint);
    world.sync();
  }
  go();
  await world.conntrack.idle();
  expect(world.dumps().map((filter) => filter?.original?.destination)).toEqual(["10.0.0.1", "10.0.0.1", "10.0.0.2"]);
});

test("one changed service does not wait for a full pass", async () => {
  const world = setUp();
  for (const n of [1, 2]) put(world, n);
  let go = (): void => undefined;
  const gate = new Promise<void>((resolve) => (go = resolve));
  world.table.setLatency((action) => (action === "dump" && world.dumps().length === 1 ? gate : undefined));
  world.sync();
  await until(() => world.dumps().length === 1);
  world.table.add(udp("10.0.0.1", "10.1.0.1"));
  put(world, 1, "10.1.1.1");
  world.sync();
  await until(() => left(world).length === 0);
  go();
});

describe("failures", () => {
  test("are logged and retried, and never reach the caller", async () => {
    const world = await settledWorld();
    world.table.add(udp("10.0.0.1", "10.1.0.1"));
    for (let i = 0; i < 3; i++) world.table.failNext({ action: "dump", errno: "ENOBUFS" });
    put(world, 1, "10.1.1.1");
    world.sync();
    await until(() => left(world).length === 0);
    const failures = world.lines.filter(({ level }) => level === "warn" || level === "error");
    expect(failures.map(({ level, retryMs }) => [level, retryMs])).toEqual([
      ["error", RETRY_MS],
      ["warn", 2 * RETRY_MS],
      ["warn", 4 * RETRY_MS],
    ]);
  });

  test("a failed deletion is logged and retried as well", async () => {
    const world = setUp();
    put(world, 1);
    world.table.add(udp("10.0.0.1", "10.9.9.9"));
    world.table.failNext({ action: "delete", errno: "EBUSY" });
    world.sync();
    await until(() => left(world).length === 0);
  });

  test("an interrupted dump is retried silently", async () => {
    const world = setUp({ timing: { settleMs: 60_000, firstRetryMs: RETRY_MS } });
    put(world, 1);
    world.table.interruptDumps(2);
    world.sync("ip");
    await until(() => world.dumps().length === 3);
    expect(world.lines.filter(({ level }) => level === "warn" || level === "error")).toEqual([]);
  });

  test("stop ends retries and follow-ups", async () => {
    const world = setUp();
    put(world, 1);
    world.table.failNext({ action: "dump", errno: "ENOBUFS" });
    world.sync("ip");
    await until(() => world.lines.some(({ level }) => level === "error"));
    await world.conntrack.stop();
    const calls = world.table.calls.length;
    await vi.advanceTimersByTimeAsync(4 * RETRY_MS);
    expect(world.table.calls.length).toBe(calls);
  });
});

describe("memory of removed addresses", () => {
  test.each([
    ["UDP", 2],
    // No pass of the reconciler handles TCP.
    ["TCP", 8],
  ])(
    "after 1,000 deletions and creations with another endpoint, %s: at most %d endpoints are remembered",
    async (protocol, most) => {
      const former = new FormerTargets();
      const world = setUp({ former });
      const { model, sync, settled } = world;
      const ports = [{ port: 53, protocol }];
      model.upsertService(service("other", { clusterIP: "10.0.0.2", ports }));
      sync();
      await settled();
      let peak = 0;
      for (let i = 0; i < 1000; i++) {
        model.upsertService(service("s1", { clusterIP: "10.0.0.1", ports }));
        model.upsertSlice(slice("s1-1", "s1", [`10.1.${i >> 8}.${i & 255}`], { ports }));
        sync();
        model.removeService("default/s1");
        model.removeSlice("default/s1-1");
        sync();
        await world.conntrack.idle();
        peak = Math.max(peak, former.endpoints);
      }
      expect(peak).toBeLessThanOrEqual(most);
      await settled();
      if (protocol === "UDP") expect([former.size, former.endpoints]).toEqual([0, 0]);
    },
  );
});

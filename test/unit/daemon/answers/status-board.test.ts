/** How `status` and `services` describe past events. */
import { expect, test, vi } from "vitest";
import { jsonParts } from "../../../../src/daemon/control/json-parts.js";
import { ServiceBoard } from "../../../../src/daemon/answers/service-board.js";
import { StatusBoard, type StatusBoardOptions } from "../../../../src/daemon/answers/status-board.js";
import type { EventList, ServiceList } from "../../../../src/observe/status-report.js";
import { statusLines } from "../../../../src/cli/text/status-text.js";
import type { Clock } from "../../../../src/nft/engine-exports.js";
import { RefusalReadings } from "../../../../src/proxier/refusal-readings.js";
import { FakeKernel } from "../../../fakes/fake-kernel.ts";
import { newModel, service, slice } from "../../model/objects.js";
import { WRITTEN } from "../../proxier/support/sync-report.ts";
import { SILENT } from "../../../support/log.ts";
import { countTurns } from "../../../support/counted-turns.ts";

function setUp(
  health: Partial<{ healthy: boolean; pendingMs: number; nodeIneligible: readonly [string, string] }> = {},
  more: Partial<StatusBoardOptions> = {},
) {
  const { model } = newModel();
  let now = 1_000;
  const board = new StatusBoard({
    log: SILENT,
    version: "1.2.3",
    nodeName: "here",
    families: ["ip"],
    model,
    health: {
      healthy: health.healthy ?? true,
      pendingMs: () => health.pendingMs ?? 0,
      nodeIneligible: health.nodeIneligible,
    },
    now: () => now,
    ...more,
  });
  const write = (ok = true): void => {
    const work = { transactions: 1, operations: 1, bytes: 1, kernelMs: 1 };
    board.synced({ ...WRITTEN, ok, settled: ok, ...(ok && { work }) });
  };
  const proxier = { model, families: [] };
  const clock: Clock = { now: () => now };
  const refusals = new RefusalReadings({ kernel: new FakeKernel(), families: ["ip"], model });
  const services = new ServiceBoard({ families: ["ip"], proxier, states: board, clock, counters: "off", refusals });
  const ask = (...path: readonly string[]): Promise<unknown> | undefined => services.route(["services", ...path]);
  /** Returns the answer over the socket. */
  const told = async (...path: readonly string[]): Promise<unknown> => {
    let text = "";
    for await (const part of jsonParts(await services.route(path))) text += part;
    return JSON.parse(text);
  };
  const listed = async (...path: readonly string[]): Promise<ServiceList> =>
    (await told("services", ...path)) as ServiceList;
  return { model, board, services, write, ask, told, listed, setNow: (ms: number) => (now = ms) };
}

test("before the first write other programs are not called harmless, because services are unknown", async () => {
  const { board, write } = setUp();
  expect(statusLines(await board.status()).join("\n")).toMatch(
    /^other programs +not checked, because no services are known yet$/m,
  );
  write();
  expect(statusLines(await board.status()).join("\n")).not.toContain("other programs");
});

test("before the first write everything is pending, and that is a problem", async () => {
  const { model, board, listed, write } = setUp();
  model.upsertService(service("web"));
  model.upsertSlice(slice("web-1", "web", ["10.1.0.1"]));
  expect((await listed()).items).toMatchObject([{ name: "web", state: "pending" }]);
  expect((await board.status()).problems.map(({ what }) => what)).toEqual([
    "no IPv4 rules have been written since startup",
  ]);
  write();
  expect((await listed()).items).toMatchObject([{ name: "web", state: "active", serving: 1, total: 1 }]);
  expect(await board.status()).toMatchObject({
    problems: [],
    families: [{ family: "ip", inForce: true, services: 1, endpoints: 1 }],
  });
});

test("before the first write status reports what the kernel serves from an earlier run; afterwards it no longer asks", async () => {
  let asked = 0;
  const kernelEntries = (): Promise<number> => Promise.resolve(++asked);
  const { board, write } = setUp({}, { kernelEntries });
  const early = await board.status();
  expect(early.families).toMatchObject([{ inForce: false, services: 0, kernelEntries: 1 }]);
  expect(statusLines(early).join("\n")).toMatch(
    /^IPv4 +not written since startup; the kernel serves 1 VIP or node port of an earlier run$/m,
  );
  write();
  const [family] = (await board.status()).families;
  expect(family).not.toHaveProperty("kernelEntries");
  expect(asked).toBe(1);
});

test("an unreadable kernel is reported as unknown", async () => {
  const { board } = setUp({}, { kernelEntries: () => Promise.reject(new Error("EPERM")) });
  expect(statusLines(await board.status()).join("\n")).toMatch(/^IPv4 +not written: 0 services, 0 endpoints/m);
});

test("ignored objects of manifests are counted as well", async () => {
  const { board, write } = setUp({}, { ignoredInManifests: () => 1 });
  write();
  expect(statusLines(await board.status()).join("\n")).toMatch(
    /^ignored objects +1 object or field cannot be served$/m,
  );
});

test("each state has its reason", async () => {
  const { model, board, listed, write } = setUp();
  for (const [i, name] of ["fine", "empty", "refused"].entries())
    model.upsertService(service(name, { clusterIP: `10.0.0.${i + 1}` }));
  model.upsertService(service("late", { clusterIP: "10.0.0.9", externalIPs: ["10.0.0.1"] }));
  for (const name of ["fine", "refused", "late"]) model.upsertSlice(slice(`${name}-1`, name, ["10.1.0.1"]));
  write();
  board.quarantined({ family: "ip", service: "default/refused", reason: "EINVAL: no" });
  const states = Object.fromEntries((await listed()).items.map(({ name, state, reason }) => [name, [state, reason]]));
  expect(states).toMatchObject({
    fine: ["active", undefined],
    empty: ["rejected", "no endpoint on any node is ready"],
    refused: ["quarantined", "EINVAL: no"],
    late: ["shadowed", expect.stringContaining("10.0.0.1") as string],
  });
  expect((await board.status()).problems.map(({ what }) => what)).toEqual([
    "default/refused is quarantined (IPv4): EINVAL: no",
    expect.stringContaining("Service default/late: spec.externalIPs"),
  ]);
  board.released({ family: "ip", service: "default/refused" });
  expect((await listed("default", "refused")).items).toMatchObject([{ state: "active" }]);
});

test("a named service has its endpoints and their shares, and an unknown one is missing", async () => {
  const { model, ask, listed, write } = setUp();
  model.upsertService(
    service("web", { externalTrafficPolicy: "Local", type: "NodePort", ports: [{ port: 80, nodePort: 30080 }] }),
  );
  const draining = {
    ...{ addresses: ["10.1.0.3"], conditions: { ready: false, serving: false, terminating: true } },
    ...{ targetRef: { kind: "Pod", name: "web-7d4b-b" }, zone: "b", hints: { forZones: [{ name: "b" }] } },
  };
  const local = {
    ...{ addresses: ["10.1.0.2"], nodeName: "here", zone: "a" },
    targetRef: { kind: "Pod", namespace: "default", name: "web-7d4b-a" },
  };
  model.upsertSlice(slice("web-1", "web", ["10.1.0.1", local, draining]));
  write();
  const [port] = (await listed("default", "web")).items;
  expect(port).toMatchObject({ serving: 2, total: 3, externalTrafficPolicy: "Local", nodePort: 30_080 });
  expect(port?.endpoints).toEqual([
    {
      ...{ address: "10.1.0.1", port: 8080, local: false, ready: true, serving: true, terminating: false },
      ...{ node: "n1", clusterShare: 0.5, localShare: 0 },
    },
    {
      ...{ address: "10.1.0.2", port: 8080, local: true, ready: true, serving: true, terminating: false },
      ...{ pod: "web-7d4b-a", node: "here", zone: "a", clusterShare: 0.5, localShare: 1 },
    },
    {
      ...{ address: "10.1.0.3", port: 8080, local: false, ready: false, serving: false, terminating: true },
      ...{ pod: "web-7d4b-b", zone: "b", forZones: ["b"], clusterShare: 0, localShare: 0 },
    },
  ]);
  expect(ask("default", "nope")).toBeUndefined();
  expect(ask("default")).toBeUndefined();
});

test("services are listed by namespace, name and port", async () => {
  const { model, listed, write } = setUp();
  const ports = [443, 80].map((port) => ({ name: `p${port}`, port }));
  const names = ["shop-eu/kafka", "shop/kafka-ui", "shop/kafka", "shop/api"];
  for (const [i, each] of names.entries()) {
    const [namespace, name] = each.split("/");
    const object = service(name, { clusterIP: `10.0.0.${i + 1}`, ...(i === 2 && { ports }) });
    model.upsertService({ ...object, metadata: { ...object.metadata, namespace } });
  }
  write();
  const order = ["shop/api:80", "shop/kafka:80", "shop/kafka:443", "shop/kafka-ui:80", "shop-eu/kafka:80"];
  expect((await listed()).items.map((item) => `${item.namespace}/${item.name}:${item.port}`)).toEqual(order);
});

test("without a health port /healthz is not mentioned", async () => {
  expect(statusLines(await setUp().board.status()).join("\n")).toMatch(/^health +ok \(no health port\)$/m);
  expect(statusLines(await setUp({ healthy: false }).board.status()).join("\n")).toMatch(
    /^health +changes have been pending for too long$/m,
  );
});

test("an address belongs to its service, or to none", async () => {
  const { model, services, told, write } = setUp();
  model.upsertService(service("web", { type: "NodePort", ports: [{ port: 80, nodePort: 30080 }] }));
  model.upsertSlice(slice("web-1", "web", ["10.1.0.1"]));
  write();
  const web = { items: [{ name: "web", endpoints: [{ address: "10.1.0.1" }] }] };
  expect(await told("owner", "ip", "TCP", "80", "10.0.0.1")).toMatchObject(web);
  expect(await told("owner", "ip", "TCP", "30080", "192.0.2.1")).toMatchObject(web);
  const wrong = [
    "ip TCP 81 10.0.0.1",
    "ip UDP 80 10.0.0.1",
    "ipx TCP 80 10.0.0.1",
    "ip ICMP 80 10.0.0.1",
    "ip TCP x",
    "ip TCP 80 x",
  ];
  for (const words of wrong) expect(services.route(["owner", ...words.split(" ")])).toBeUndefined();
  // The list of services has one format.
  expect(services.route(["table"])).toBeUndefined();
});

test("status and events show which process changed a table, and how soon that was repaired", async () => {
  const { board, write, setNow } = setUp();
  write();
  setNow(5_000);
  const report = {
    cause: "table-deleted",
    found: [],
    changes: ["table deleted"],
    by: ["nft (pid 7)"],
    operations: 9,
  } as const;
  board.repaired({ family: "ip", ...report, ms: 12.3 });
  const { items } = board.events();
  expect(items).toEqual([
    { at: 1_000, type: "normal", message: "IPv4 rules active: 0 services, 0 endpoints" },
    { at: 5_000, type: "warning", message: "nft (pid 7) deleted the IPv4 table; repaired in 12ms" },
  ]);
});

test("problems are listed first, with what to do", async () => {
  const { board, write } = setUp({
    healthy: false,
    nodeIneligible: ["Node here is being deleted", "restart the kubelet"],
  });
  write();
  write(false);
  board.contended({ by: ["nft-proxier (pid 9)"], hint: "end one of the two" });
  const { problems } = await board.status();
  expect(problems.map(({ what }) => what)).toEqual([
    "the kernel refuses the IPv4 table",
    "changes have been pending for too long",
    "nft-proxier (pid 9) keeps changing the tables",
    "Node here is being deleted",
  ]);
  // Each begins with what to do.
  expect(problems.map(({ remedy }) => remedy.split(" ")[0])).toEqual(["read", "read", "end", "restart"]);
  expect(
    statusLines(await board.status())
      .join("\n")
      .split("\n")[0],
  ).toBe("PROBLEM  the kernel refuses the IPv4 table");
  board.uncontended();
  write();
  expect((await board.status()).problems.map(({ what }) => what)).not.toContain("the kernel refuses the IPv4 table");
});

test("the last 300 events are kept", async () => {
  const { board } = setUp();
  for (let i = 0; i < 500; i++) board.released({ family: "ip", service: `default/s${i}` });
  const { items } = (await board.route(["events"])) as EventList;
  expect(items).toHaveLength(300);
  expect(items.at(-1)?.message).toContain("s499");
});

test("a status checks a few services, however many exist", async () => {
  const { model, board, write } = setUp();
  for (let i = 0; i < 10_000; i++) {
    model.upsertService(service(`s${i}`, { clusterIP: `10.1.${i >> 8}.${i & 255}` }));
  }
  write();
  let walked = 0;
  const services = model.services.bind(model);
  model.services = function* () {
    for (const name of services()) {
      walked++;
      yield name;
    }
  };
  const views = vi.spyOn(model, "views");
  const described = vi.spyOn(model, "eachViewWithCandidates");
  expect(await board.status()).toMatchObject({ problems: [], families: [{ services: 10_000 }] });
  expect(walked).toBeLessThan(200);
  expect(views.mock.calls.length).toBeLessThan(200);
  expect(described).not.toHaveBeenCalled();
});

test("parts of the daemon are asked for each status, and the event loop stays responsive among many problems", async () => {
  const { model, board, write } = setUp();
  write();
  for (let i = 0; i < 4000; i++) {
    const externalIPs = [`192.0.${i >> 9}.${(i >> 1) & 255}`];
    model.upsertService(service(`s${i}`, { clusterIP: `10.1.${i >> 8}.${i & 255}`, externalIPs }));
  }
  let broken = true;
  board.ask(() => (broken ? [{ what: "a part is broken", remedy: "mend it" }] : []));
  const {
    result: { problems },
    turns,
    mostLooks,
  } = await countTurns(() => board.status());
  // A look after each of the 2,000 addresses that two services claim.
  expect(mostLooks).toBeLessThanOrEqual(5);
  expect(turns).toBeGreaterThan(2000 / 5);
  expect(problems).toHaveLength(12);
  expect(problems[0]).toEqual({ what: "a part is broken", remedy: "mend it" });
  expect(problems.at(-1)?.what).toMatch(/^\d+ more fields are ignored$/);
  broken = false;
  expect((await board.status()).problems).toHaveLength(11);
});

test("lost events are a problem for a minute, and repaired changes are counted", async () => {
  const { board, write, setNow } = setUp();
  write();
  setNow(10_000);
  board.eventsLost("events were lost");
  const change = { family: "ip", cause: "changed", found: [], by: [], operations: 1, ms: 7 } as const;
  for (let times = 0; times < 3; times++) board.repaired({ ...change, changes: ["chain services deleted"] });
  setNow(69_000);
  expect(statusLines(await board.status(), 69_000).join("\n")).toMatch(
    /last repair +another process changed the IPv4 table 59s ago: chain services deleted; repaired in 7ms; 3 repairs in all in the 10 minutes before$/m,
  );
  expect(statusLines(await board.status(), 10_000 + 600_000).join("\n")).toMatch(/10m ago: .*; repaired in 7ms$/m);
  expect((await board.status()).problems.map(({ what }) => what)).toEqual([
    expect.stringMatching(/^events were lost 59s ago/) as string,
  ]);
  setNow(70_001);
  expect((await board.status()).problems).toEqual([]);
});

test("node ports without any address are a problem, and otherwise their addresses are shown", async () => {
  const { board, write } = setUp();
  write();
  board.nodePortAddresses("ip", ["192.0.2.1"]);
  board.nodePortAddresses("ip", "all", ["127.0.0.0/8"]);
  expect(statusLines(await board.status()).join("\n")).toMatch(
    /^IPv4 node ports +on 127\.0\.0\.0\/8, every other local address$/m,
  );
  board.nodePortAddresses("ip", [], ["127.0.0.0/8"]);
  expect((await board.status()).problems).toEqual([]);
  board.nodePortAddresses("ip", []);
  expect((await board.status()).problems[0]?.what).toMatch(/^node ports are not reachable on any IPv4 address/);
});

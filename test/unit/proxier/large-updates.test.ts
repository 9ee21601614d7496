/** Services that are written in pieces, and events in between. */
import type { V1EndpointSlice, V1Service } from "@kubernetes/client-node";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { KernelError } from "../../../src/nft/kernel/errors.js";
import { ProxyHealth } from "../../../src/observe/proxy-health.js";
import type { ProxierObserver } from "../../../src/proxier/observer.js";
import type { CommitOptions, CommitResult, Op } from "../../../src/nft/kernel/kernel.js";
import { LargeUpdates } from "../../../src/proxier/large-updates.js";
import type { ServicePortView } from "../../../src/model/service-port-view.js";
import type { Proxier, ProxierOptions } from "../../../src/proxier/proxier.js";
import { Quarantine } from "../../../src/proxier/quarantine.js";
import { FamilyRuleset } from "../../../src/ruleset/family-ruleset.js";
import { Table } from "../../../src/nft/engine-exports.js";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import { putObjects } from "../../support/decoded.js";
import { countTurns } from "../../support/counted-turns.ts";
import { SILENT } from "../../support/log.ts";
import { snapshot } from "../../support/snapshot.ts";
import { fakeTime, pass, passInSteps } from "./support/fake-time.js";
import { makeProxier } from "./support/proxier.js";
import { type Refusals, refuse, type Telling } from "./support/refusing.js";
import { someOf } from "../../lab/length.ts";

const PORTS = 400;
const LAST_PORT = 20_000 + PORTS - 1;

let kernel: FakeKernel;
let proxier: Proxier;
let made: Proxier[];

beforeEach(() => {
  fakeTime();
  [kernel, made] = [new FakeKernel(), []];
  proxier = make(kernel);
});
afterEach(async () => {
  for (const one of made) await one.stop();
  vi.useRealTimers();
});

function make(on: FakeKernel, more: Partial<ProxierOptions> = {}): Proxier {
  const one = makeProxier(on, { serviceElements: 32, ...more });
  made.push(one);
  return one;
}

interface Spec {
  readonly name: string;
  readonly ips: readonly string[];
  readonly ports: readonly number[];
  readonly pod: string;
  readonly externalIPs?: readonly string[];
}

function put({ name, ips, ports, pod, externalIPs = [] }: Spec, to: Proxier = proxier): void {
  const list = ports.map((port) => ({ name: `p${port}`, port, protocol: "UDP" }));
  const service: V1Service = {
    metadata: { name },
    spec: { clusterIP: ips[0], clusterIPs: [...ips], externalIPs: [...externalIPs], ports: list },
  };
  const slice: V1EndpointSlice = {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { name: `${name}-1`, labels: { "kubernetes.io/service-name": name } },
    addressType: "IPv4",
    ports: list,
    endpoints: [{ addresses: [pod] }],
  };
  putObjects(to, service, slice);
}

const large = (pod: string, externalIPs: readonly string[] = []): Spec => ({
  name: "large",
  ips: ["10.96.43.1"],
  ports: Array.from({ length: PORTS }, (_, i) => 20_000 + i),
  pod,
  externalIPs,
});
const small = (pod: string, externalIPs: readonly string[] = []): Spec => ({
  name: "small",
  ips: ["10.96.0.2"],
  ports: [LAST_PORT],
  pod,
  externalIPs,
});

interface Found {
  readonly family: string;
  readonly sets: readonly { readonly set: string; readonly elements: readonly { key: string; data?: string }[] }[];
}

/** Elements of all sets of addresses and endpoints, as text. */
async function served(by: FakeKernel): Promise<string[]> {
  const tables = (await snapshot(by)) as readonly Found[];
  return tables.flatMap(({ family, sets }) =>
    sets
      .filter(({ set }) => set !== "dispatch")
      .flatMap(({ set, elements }) => elements.map(({ key, data = "" }) => `${family} ${set} ${key} ${data}`)),
  );
}

/** Elements of a new table with these services. */
async function expected(...specs: readonly Spec[]): Promise<string[]> {
  const other = new FakeKernel();
  const one = make(other);
  for (const spec of specs) put(spec, one);
  one.synced();
  expect((await one.sync()).ok).toBe(true);
  return served(other);
}

async function begin(...specs: readonly Spec[]): Promise<void> {
  for (const spec of specs) put(spec);
  proxier.synced();
  expect((await proxier.sync()).ok).toBe(true);
}

const EXTERNAL = ["203.0.113.1"];

it.each(someOf([0, 5], 2))(
  "an address moves from a service that is being written to another one, after %d transactions",
  async (transactions) => {
    await begin(large("10.244.1.1", EXTERNAL), small("10.244.3.1"));
    let writes = 0;
    const move = (): void => {
      put(large("10.244.1.3"));
      put(small("10.244.3.1", EXTERNAL));
    };
    afterEachWrite(() => {
      if (++writes === transactions) move();
    });
    put(large("10.244.1.2", EXTERNAL));
    proxier.flush();
    if (transactions === 0) move();
    await pass(1000);
    await proxier.sync();
    await pass(700);
    await proxier.sync();
    expect(writes).toBeGreaterThan(transactions + 10);
    expect(await served(kernel)).toEqual(await expected(large("10.244.1.3"), small("10.244.3.1", EXTERNAL)));
  },
);

it("a family that the kernel refuses does not keep large services out of the other", async () => {
  const commit = kernel.commit.bind(kernel);
  kernel.commit = (ops: readonly Op[], options?: CommitOptions): Promise<CommitResult> =>
    ops.some(({ family }) => family === "ip6")
      ? Promise.reject(new KernelError("refused", "no", { action: "commit", errno: "EPERM", faults: [] }))
      : commit(ops, options);
  proxier = make(kernel, { families: ["ip", "ip6"] });
  for (const spec of [large("10.244.1.1"), small("10.244.3.1")]) put(spec);
  proxier.synced();
  await proxier.sync();
  put(large("10.244.1.2"));
  put(small("10.244.3.2"));
  proxier.flush();
  const all = await expected(large("10.244.1.2"), small("10.244.3.2"));
  await pass(10_000);
  expect(await served(kernel)).toEqual(all);
});

it.each(["first", "last"])(
  "an address that moves to a large service, which is written %s, is served throughout",
  async (when) => {
    await begin(large("10.244.1.1"), small("10.244.3.1", EXTERNAL));
    let writes = 0;
    const gaps: number[] = [];
    const commit = kernel.commit.bind(kernel);
    kernel.commit = async (ops: readonly Op[], options?: CommitOptions): Promise<CommitResult> => {
      const result = await commit(ops, options);
      writes++;
      if (!(await served(kernel)).some((line) => line.startsWith("ip services cb007101"))) gaps.push(writes);
      return result;
    };
    const changes = [() => put(large("10.244.1.2", EXTERNAL)), () => put(small("10.244.3.1"))];
    for (const change of when === "first" ? changes : changes.toReversed()) change();
    proxier.flush();
    await pass(100);
    await proxier.sync();
    expect(writes).toBeGreaterThan(10);
    expect(gaps).toEqual([]);
  },
);

/** Calls `look` after each transaction from now on, with the served addresses and the number of elements that it added or deleted. */
function afterEachWrite(look: (lines: readonly string[], elements: number) => void): void {
  const commit = kernel.commit.bind(kernel);
  kernel.commit = async (ops: readonly Op[], options?: CommitOptions): Promise<CommitResult> => {
    const result = await commit(ops, options);
    const elements = (op: Op): number => (op.kind === "elements" && "elements" in op ? op.elements.count : 0);
    look(
      await served(kernel),
      ops.reduce((sum, op) => sum + elements(op), 0),
    );
    return result;
  };
}

const second = (pod: string, externalIPs: readonly string[] = []): Spec => ({
  ...large(pod, externalIPs),
  name: "second",
  ips: ["10.96.43.2"],
});
const third = (pod: string, externalIPs: readonly string[] = []): Spec => ({
  ...large(pod, externalIPs),
  name: "third",
  ips: ["10.96.43.3"],
});

const EXCHANGES: readonly (readonly [what: string, services: readonly (typeof large)[]])[] = [
  ["two large services", [large, second]],
  ["a large service and a small one", [large, small]],
  ["three large services, in a ring,", [large, second, third]],
];
it.each(someOf(EXCHANGES, 3))("%s that exchange addresses serve all of them throughout", async (_what, services) => {
  const addresses = ["203.0.113.1", "203.0.113.2", "203.0.113.3"].slice(0, services.length);
  const specs = (turn: number): Spec[] =>
    services.map((one, i) => one(`10.244.${i}.${turn + 1}`, [addresses[(i + turn) % addresses.length]]));
  await begin(...specs(0));
  const keys = addresses.map((_, i) => `ip services cb00710${i + 1}11000000${LAST_PORT.toString(16)}0000`);
  let writes = 0;
  const gaps: string[] = [];
  afterEachWrite((lines) => {
    writes++;
    for (const key of keys) if (!lines.some((line) => line.startsWith(key))) gaps.push(`${key} after write ${writes}`);
  });
  for (const spec of specs(1)) put(spec);
  proxier.flush();
  await pass(100);
  await proxier.sync();
  expect(writes).toBeGreaterThan(10);
  expect(gaps).toEqual([]);
  await pass(700);
  await proxier.sync();
  expect(await served(kernel)).toEqual(await expected(...specs(1)));
});

it("addresses that move along a row of services, to a large one at its end, are served throughout", async () => {
  const addresses = ["203.0.113.1", "203.0.113.2", "203.0.113.3"];
  const row = (pod: string, served: readonly string[][]): Spec[] => [
    large(pod, served[0]),
    ...served.slice(1).map((ips, i) => ({ ...small("10.244.3.1", ips), name: `s${i}`, ips: [`10.96.0.${i + 2}`] })),
  ];
  const [first, then] = [
    [[], ...addresses.map((ip) => [ip])],
    [...addresses.map((ip) => [ip]), []],
  ];
  await begin(...row("10.244.1.1", first));
  const gaps = new Set<string>();
  afterEachWrite((lines) => {
    for (let i = 1; i <= addresses.length; i++)
      if (!lines.some((line) => line.startsWith(`ip services cb00710${i}11000000${LAST_PORT.toString(16)}0000`)))
        gaps.add(addresses[i - 1]);
  });
  const specs = row("10.244.1.2", then);
  // The first one releases an address, and takes none.
  for (const spec of specs.toReversed()) put(spec);
  proxier.flush();
  await pass(100);
  await proxier.sync();
  expect([...gaps]).toEqual([]);
  await pass(700);
  await proxier.sync();
  expect(await served(kernel)).toEqual(await expected(...specs));
});

describe("a large service that the kernel refuses", () => {
  let now: number;
  let refusals: Refusals;
  let told: string[];
  const isEndpoint: Refusals["refuses"] = (op) =>
    op.kind === "elements" && op.op === "add" && op.set.startsWith("endpoints-");

  beforeEach(() => {
    now = 1_000_000;
    told = [];
    refusals = refuse(kernel);
    const observer: ProxierObserver = {
      quarantined: ({ service }) => void told.push(`quarantined ${service}`),
      released: ({ service }) => void told.push(`released ${service}`),
    };
    proxier = make(kernel, { clock: { now: () => now }, observers: [observer] });
  });

  it.each<Telling>(["element", "nothing"])(
    "is retried in pieces with its current views (the kernel names: %s)",
    async (telling) => {
      refusals.telling = telling;
      await begin(large("10.244.1.1"), small("10.244.3.1"));
      refusals.refuses = isEndpoint;
      put(large("10.244.1.2"));
      // An error that names nothing may have any cause: the first one is retried.
      for (let i = 0; i < 3 && told.length === 0; i++) await proxier.sync();
      expect(told).toEqual(["quarantined default/large"]);
      // Until here the kernel is unchanged.
      expect(await served(kernel)).toEqual(await expected(large("10.244.1.1"), small("10.244.3.1")));
      refusals.refuses = () => false;
      const elements: number[] = [];
      afterEachWrite((_, count) => elements.push(count));
      now += 2_000;
      expect((await proxier.sync()).ok).toBe(true);
      expect(told).toEqual(["quarantined default/large", "released default/large"]);
      expect(await served(kernel)).toEqual(await expected(large("10.244.1.2"), small("10.244.3.1")));
      expect(elements.length).toBeGreaterThan(10);
      expect(Math.max(...elements)).toBeLessThan(100);
    },
  );

  it("does not affect the service whose address it requested", async () => {
    await begin(large("10.244.1.1"), small("10.244.3.1", EXTERNAL));
    refusals.refuses = (op, element) =>
      isEndpoint(op, element) &&
      element !== undefined &&
      Buffer.from(element.batch.bytes).includes("0af40102", 0, "hex");
    put(large("10.244.1.2", EXTERNAL));
    put(small("10.244.3.1"));
    await proxier.sync();
    expect(told).toEqual(["quarantined default/large"]);
    now += 500;
    await proxier.sync();
    expect(await served(kernel)).toEqual(await expected(large("10.244.1.1"), small("10.244.3.1")));
  });
});

it("a large service that does not become active makes the node unhealthy, and its change is pending", async () => {
  let now = 1_000_000;
  const health = new ProxyHealth({
    families: ["ip"],
    timeoutMs: 60_000,
    nodeName: undefined,
    clock: { now: () => now },
  });
  proxier = make(kernel, { clock: { now: () => now }, observers: [health] });
  await begin(large("10.244.1.1"), small("10.244.3.1"));
  const first = Promise.withResolvers<void>();
  const rest = Promise.withResolvers<void>();
  let writes = 0;
  const commit = kernel.commit.bind(kernel);
  kernel.commit = async (ops: readonly Op[], options?: CommitOptions): Promise<CommitResult> => {
    if (++writes === 5) first.resolve();
    if (writes >= 5) await rest.promise;
    return commit(ops, options);
  };
  put(large("10.244.1.2"));
  proxier.flush();
  await pass(100);
  await first.promise;
  now += 50_000;
  expect(health.pendingMs("ip")).toBe(50_000);
  now += 10_000;
  expect(health.livez().code).toBe(503);
  rest.resolve();
  await pass(1000);
  expect(health.livez().code).toBe(200);
  expect(health.pendingMs("ip")).toBe(0);
});

/** Updates of services without ports; `begin` is called for each. */
function updatesOf(begin: (service: string) => void, failed: string[] = []): LargeUpdates {
  return new LargeUpdates({
    model: {
      eachView: () => [],
      sizeOf: () => 0,
      ownerOf: () => undefined,
      askedFor: () => ({ balance: { by: "chance", slots: 0, weights: undefined }, drainSeconds: 0 }),
      isDirty: () => false,
    },
    families: [
      {
        family: "ip",
        ruleset: { sizeOf: () => 0, state: () => [] },
        quarantine: {
          *updateInPieces(service) {
            yield undefined;
            begin(service);
            return true;
          },
        },
      },
    ],
    onViews: () => undefined,
    onError: (service) => void failed.push(service),
  });
}

async function through(updates: LargeUpdates): Promise<string[]> {
  const all: string[] = [];
  for (let i = 0; i < 100 && updates.size > 0; i++)
    all.push(...(await updates.advance()).map(({ service }) => service));
  return all;
}

it("a start with many services runs in slices of the event loop", async () => {
  const updates = updatesOf(() => undefined);
  const services = Array.from({ length: 200 }, (_, i) => `default/s${i}`);
  const { turns, mostLooks } = await countTurns(async () => {
    expect(await updates.accept(services, 0)).toEqual([]);
    while (updates.size > 0) await updates.advance();
  });
  // A look after each service, and some slices that follow one another in a turn.
  expect(mostLooks).toBeLessThanOrEqual(20);
  expect(turns).toBeGreaterThan(200 / 5);
});

it("one write spends a limited time on pauses, such as those between the slots of many services", async () => {
  const updates = updatesOf(() => undefined);
  await updates.accept(
    Array.from({ length: 2000 }, (_, i) => `default/s${i}`),
    0,
  );
  const { turns } = await countTurns(() => updates.advance());
  expect(turns).toBeLessThan(20);
  expect(updates.size).toBeGreaterThan(1000);
});

it("a service that changes while its update fails is updated again from scratch", async () => {
  const failed: string[] = [];
  let tries = 0;
  let second: Promise<unknown> | undefined;
  const updates = updatesOf(() => {
    if (++tries > 1) return;
    second = updates.accept(["default/a"], 0);
    throw new Error("the first one fails");
  }, failed);
  await updates.accept(["default/a"], 0);
  expect(await through(updates)).toEqual(["default/a", "default/a"]);
  await second;
  expect(failed).toEqual(["default/a"]);
});

describe("a quarantined service that is updated in pieces", () => {
  let now: number;
  let quarantine: Quarantine;
  let ruleset: FamilyRuleset;
  let write: () => Promise<unknown>;

  const viewsOf = (spec: Spec): readonly ServicePortView[] => {
    const one = make(new FakeKernel());
    put(spec, one);
    return one.model.views("ip", `default/${spec.name}`);
  };
  const update = (service: string, spec: Spec): void => {
    for (const _ of quarantine.updateInPieces(service, viewsOf(spec)));
  };
  const servedBy = (service: string): string[] => [
    ...new Set(ruleset.state(service).flatMap(({ cluster }) => [cluster.address(0)])),
  ];

  beforeEach(async () => {
    now = 1_000_000;
    const clock = { now: () => now };
    const table = new Table(kernel, { family: "ip", name: "kube-proxy", clock });
    ruleset = new FamilyRuleset(table, "ip", {
      masqueradeAll: false,
      masqueradeBit: 14,
      detector: { kind: "none" },
      nodePortAddresses: "all",
    });
    quarantine = new Quarantine({ family: "ip", ruleset, log: SILENT, clock, observers: [] });
    write = () => quarantine.write(() => table.apply());
    update("default/large", large("10.244.1.1"));
    await write();
    const refusals = refuse(kernel);
    refusals.refuses = (op) => op.kind === "elements" && op.set.startsWith("endpoints-");
    update("default/large", large("10.244.1.2"));
    await write();
    refusals.refuses = () => false;
    expect(quarantine.services).toEqual(["default/large"]);
  });

  it("is not retried with its former desired state", async () => {
    const pieces = quarantine.updateInPieces("default/large", viewsOf(large("10.244.1.3")));
    pieces.next();
    await write();
    now += 5000;
    await write();
    while (pieces.next().done !== true) await write();
    await write();
    expect(servedBy("default/large")).toEqual(["10.244.1.3"]);
    expect(quarantine.services).toEqual([]);
  });

  it("reaches its desired state even if another service received its address meanwhile", async () => {
    const desired = viewsOf({ ...large("10.244.1.3"), ips: ["10.96.43.9"] });
    const pieces = quarantine.updateInPieces("default/large", desired);
    pieces.next();
    await write();
    update("default/small", { ...small("10.244.3.1"), ips: ["10.96.43.1"] });
    await write();
    while (pieces.next().done !== true) await write();
    await write();
    expect(servedBy("default/large")).toEqual(["10.244.1.3"]);
  });
});

describe("one port with many endpoints", () => {
  const ENDPOINTS = 10_000;
  const NO_ADDRESSES: string[] = [];
  const MANY = { name: "many", ip: "10.96.43.2", externalIPs: NO_ADDRESSES };
  /** Each element of a write deleted and added, and the elements that lead to them. */
  const MOST_ELEMENTS = 2 * 8192 + 64;
  let sizes: number[];

  beforeEach(() => {
    proxier = make(kernel, { serviceElements: 8192 });
    sizes = [];
    const commit = kernel.commit.bind(kernel);
    kernel.commit = (ops: readonly Op[], options?: CommitOptions): Promise<CommitResult> => {
      const elements = (op: Op): number => (op.kind === "elements" && "elements" in op ? op.elements.count : 0);
      sizes.push(ops.reduce((sum, op) => sum + elements(op), 0));
      return commit(ops, options);
    };
  });

  /** @param first number of the first endpoint. */
  function putMany(first: number, to = proxier, endpoints = ENDPOINTS, { name, ip, externalIPs } = MANY): void {
    const ports = [{ name: "web", port: 80, protocol: "TCP" }];
    const pods = Array.from({ length: endpoints }, (_, i) => ({
      addresses: [`10.${(first + i) >> 16}.${((first + i) >> 8) & 255}.${(first + i) & 255}`],
    }));
    putObjects(
      to,
      { metadata: { name }, spec: { clusterIP: ip, clusterIPs: [ip], externalIPs, ports } },
      {
        apiVersion: "discovery.k8s.io/v1",
        kind: "EndpointSlice",
        metadata: { name: `${name}-1`, labels: { "kubernetes.io/service-name": name } },
        addressType: "IPv4",
        ports,
        endpoints: pods,
      },
    );
  }

  async function beginWithMany(): Promise<void> {
    await begin(small("10.244.3.1"));
    putMany(1);
    proxier.flush();
    await passInSteps(3000);
  }

  async function servedWith(first: number, endpoints = ENDPOINTS): Promise<string[]> {
    const other = new FakeKernel();
    const one = make(other);
    putMany(first, one, endpoints);
    put(small("10.244.3.1"), one);
    one.synced();
    await one.sync();
    return served(other);
  }

  /** Fails unless all endpoints that packets may draw are there. */
  async function checkServed(): Promise<void> {
    const lines = await served(kernel);
    const value = /^ip services 0a602b02\S* (\S+)$/m.exec(lines.join("\n"))?.[1];
    if (value === undefined) return;
    const drawn = new DataView(Uint8Array.from(Buffer.from(value, "hex")).buffer).getUint32(0, true) & 0xffff;
    const there = lines.filter((line) => /^ip endpoints-\d+ 0a602b02/.test(line)).length;
    expect(there).toBeGreaterThanOrEqual(drawn);
  }

  it.each([1, 2])("does not take back an address that another service got after write %d", async (count) => {
    const [few, served80] = [{ ...MANY, name: "few", ip: "10.96.43.3" }, "ip services cb0071010600000000500000"];
    putMany(1, proxier, ENDPOINTS, { ...MANY, externalIPs: EXTERNAL });
    putMany(90_001, proxier, 3, few);
    proxier.synced();
    await proxier.sync();
    let writes = 0;
    afterEachWrite(() => {
      if (++writes !== count) return;
      putMany(50_001);
      putMany(90_001, proxier, 3, { ...few, externalIPs: EXTERNAL });
      proxier.flush();
    });
    putMany(50_001, proxier, ENDPOINTS, { ...MANY, externalIPs: EXTERNAL });
    proxier.flush();
    await passInSteps(3000);
    await proxier.sync();
    expect(writes).toBeGreaterThan(4);
    const other = new FakeKernel();
    const one = make(other);
    putMany(50_001, one);
    putMany(90_001, one, 3, { ...few, externalIPs: EXTERNAL });
    one.synced();
    await one.sync();
    const of = async (by: FakeKernel): Promise<string[]> =>
      (await served(by)).filter((line) => line.startsWith(served80) || / cb007101.* 0a0[0-9a-f]{5}/.test(line));
    expect(await of(kernel)).toEqual(await of(other));
  });

  it("is created, changed, scaled and deleted in transactions of limited size, and never served in part", async () => {
    await begin(small("10.244.3.1"));
    const writes: Promise<void>[] = [];
    const commit = kernel.commit.bind(kernel);
    kernel.commit = async (ops: readonly Op[], options?: CommitOptions): Promise<CommitResult> => {
      const result = await commit(ops, options);
      writes.push(checkServed());
      return result;
    };
    const write = async (): Promise<void> => {
      proxier.flush();
      await passInSteps(3000);
      await Promise.all(writes);
    };
    putMany(1);
    await write();
    expect(await served(kernel)).toEqual(await servedWith(1));
    putMany(50_001);
    await write();
    expect(await served(kernel)).toEqual(await servedWith(50_001));
    putMany(50_001, proxier, ENDPOINTS - 1);
    await write();
    expect(await served(kernel)).toEqual(await servedWith(50_001, ENDPOINTS - 1));
    proxier.remove("Service", "default/many");
    await write();
    expect(await served(kernel)).toEqual(await expected(small("10.244.3.1")));
    expect(Math.max(...sizes)).toBeLessThanOrEqual(MOST_ELEMENTS);
  });

  it.each([1, 2])("is as before if the kernel refuses part %d, and complete after a retry", async (part) => {
    await beginWithMany();
    const refusals = refuse(kernel);
    let parts = 0;
    refusals.refuses = (op) => op.kind === "elements" && op.set.startsWith("endpoints-") && ++parts >= part;
    putMany(50_001);
    proxier.flush();
    await pass(500);
    expect(parts).toBeGreaterThanOrEqual(part);
    refusals.refuses = () => false;
    put(small("10.244.3.2"));
    proxier.flush();
    await passInSteps(60_000);
    put(small("10.244.3.1"));
    proxier.flush();
    await passInSteps(3000);
    expect(await served(kernel)).toEqual(await servedWith(50_001));
  });

  it.each([1, 2])(
    "is never served in part if the kernel refuses part %d of its deletion, and goes later",
    async (part) => {
      await beginWithMany();
      const refusals = refuse(kernel);
      let parts = 0;
      refusals.refuses = (op) =>
        op.kind === "elements" && op.op === "delete" && /^(services|endpoints-.*)$/.test(op.set) && ++parts >= part;
      proxier.remove("Service", "default/many");
      proxier.flush();
      await pass(500);
      expect(parts).toBeGreaterThanOrEqual(part);
      await checkServed();
      refusals.refuses = () => false;
      proxier.flush();
      await passInSteps(60_000);
      expect(await served(kernel)).toEqual(await expected(small("10.244.3.1")));
    },
  );

  it("is deleted by the next run if this one ends in between", async () => {
    await beginWithMany();
    const before = sizes.length;
    proxier.remove("Service", "default/many");
    proxier.flush();
    await pass(25);
    expect(sizes.length).toBeGreaterThan(before);
    await proxier.stop();
    expect((await served(kernel)).length).toBeGreaterThan(ENDPOINTS / 2);
    proxier = make(kernel);
    await begin(small("10.244.3.1"));
    await pass(600);
    await proxier.sync();
    expect(Math.max(...sizes.slice(before))).toBeLessThanOrEqual(16_384 + 64);
    expect(await served(kernel)).toEqual(await expected(small("10.244.3.1")));
  });
});

it("many services that change at once are written a few at a time, and an address that moves is served throughout", async () => {
  const SERVICES = 3_000;
  const make3000 = (pod: string, moved: number): void => {
    for (let i = 0; i < SERVICES; i++) {
      const externalIPs = i === moved ? EXTERNAL : [];
      put({ name: `s${i}`, ips: [`10.97.${i >> 8}.${i & 255}`], ports: [80], pod, externalIPs });
    }
  };
  proxier = make(kernel, { serviceElements: 1024 });
  make3000("10.244.1.1", 7);
  await begin();
  const sizes: number[] = [];
  const gaps: number[] = [];
  const commit = kernel.commit.bind(kernel);
  kernel.commit = async (ops: readonly Op[], options?: CommitOptions): Promise<CommitResult> => {
    const result = await commit(ops, options);
    sizes.push(ops.reduce((sum, op) => sum + (op.kind === "elements" && "elements" in op ? op.elements.count : 0), 0));
    if (!(await served(kernel)).some((line) => line.startsWith("ip services cb007101"))) gaps.push(sizes.length);
    return result;
  };
  make3000("10.244.1.2", SERVICES - 7);
  proxier.flush();
  await passInSteps(3000);
  expect(gaps).toEqual([]);
  expect(Math.max(...sizes)).toBeLessThan(4096);
  const all = await served(kernel);
  expect(all.filter((line) => line.includes("0af40102")).length).toBe(SERVICES + 1);
  expect(all.filter((line) => line.includes("0af40101"))).toEqual([]);
  for (let i = 0; i < SERVICES; i++) proxier.remove("Service", `default/s${i}`);
  proxier.flush();
  await passInSteps(3000);
  expect(await served(kernel)).toEqual(await expected());
  expect(Math.max(...sizes)).toBeLessThan(4096);
});

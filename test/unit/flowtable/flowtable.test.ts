/** Writes for a flowtable as interfaces come and go, and the reaction to each kind of failure. The kernel is a fake without devices. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Flowtable, type FlowtableOptions, removeFlowtable } from "../../../src/flowtable/flowtable.js";
import { FLOWTABLE_REF } from "../../../src/flowtable/operations.js";
import type { Op } from "../../../src/nft/kernel/kernel.js";
import type { InterfaceHandlers } from "../../../src/nft/kernel/network-interfaces.js";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import { keptIn, type LogLine } from "../../support/log.ts";

class FakeLinks {
  present = new Map([
    [1, "lo"],
    [2, "eth0"],
    [3, "pod1"],
    [4, "other0"],
  ]);
  handlers: InterfaceHandlers | undefined;
  watches = 0;

  names(): Promise<ReadonlyMap<number, string>> {
    return Promise.resolve(this.present);
  }

  watchLinks(handlers: InterfaceHandlers): Promise<{ close(): Promise<void> }> {
    this.watches++;
    this.handlers = handlers;
    return Promise.resolve({ close: () => Promise.resolve() });
  }

  async link(change: (names: Map<number, string>) => void): Promise<void> {
    change(this.present);
    this.handlers?.onChange();
    await pass(100);
  }
}

let kernel: FakeKernel;
let links: FakeLinks;
let lines: LogLine[];
let failures: number;
let subject: Flowtable | undefined;

beforeEach(() => {
  vi.useFakeTimers();
  kernel = new FakeKernel();
  links = new FakeLinks();
  lines = [];
  failures = 0;
});
afterEach(async () => {
  await subject?.close();
  subject = undefined;
  vi.useRealTimers();
});

const pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);
const said = (): string[] => lines.map(({ level, msg }) => `${level} ${msg}`);

async function start(options: Partial<FlowtableOptions> = {}): Promise<Flowtable> {
  const onFailure = (): void => void failures++;
  const shared = {
    kernel,
    links,
    log: keptIn(lines, "info"),
    interfaces: ["eth0", "pod*"],
    onFailure,
    kernelRelease: "6.12.0",
  };
  subject = new Flowtable({ ...shared, ...options });
  await subject.start();
  await pass(1);
  return subject;
}

const adds = (name: string) => (op: Op) =>
  op.kind === "flowtable" && op.op === "add" && (op.devices?.includes(name) ?? false);
const last = (): readonly Op[] | undefined => kernel.commits.at(-1);

test("it contains the named interfaces, also those that appear and disappear later", async () => {
  const flowtable = await start();
  expect(flowtable.devices).toEqual(["eth0", "pod1"]);
  await links.link((names) => names.set(5, "pod2").set(6, "veth9"));
  expect(flowtable.devices).toEqual(["eth0", "pod1", "pod2"]);
  expect(last()).toMatchObject([{ op: "add", kind: "flowtable", flags: 2, devices: ["pod2"] }]);
  const commits = kernel.commits.length;
  await links.link((names) => names.delete(3));
  expect(flowtable.devices).toEqual(["eth0", "pod2"]);
  // The kernel removes it itself.
  expect(kernel.commits).toHaveLength(commits);
  // Another device takes the name of a former one.
  await links.link((names) => (names.delete(5), names.set(7, "pod2")));
  expect(last()).toMatchObject([{ op: "add", devices: ["pod2"] }]);
  expect([failures, flowtable.failures()]).toEqual([0, []]);
});

test("continuous changes of links do not prevent its write", async () => {
  const flowtable = await start();
  links.present.set(5, "pod2");
  for (let i = 0; i < 4; i++) {
    links.handlers?.onChange();
    await pass(50);
  }
  expect(flowtable.devices).toContain("pod2");
});

test("255 interfaces fit one operation", async () => {
  links.present = new Map(Array.from({ length: 600 }, (_, i) => [i + 2, `pod${i}`]));
  const flowtable = await start();
  expect(flowtable.devices).toHaveLength(600);
  expect(last()?.map((op) => op.kind === "flowtable" && op.devices?.length)).toEqual([255, 255, 90]);
});

test("an interface that the kernel refuses does not affect the others, and is reported and counted once, and retried", async () => {
  kernel.failNext({ when: adds("pod1"), errno: "EOPNOTSUPP" });
  kernel.failNext({ when: adds("pod1"), errno: "EOPNOTSUPP" });
  kernel.failNext({ when: adds("pod1"), errno: "EOPNOTSUPP" });
  const flowtable = await start();
  expect(flowtable.devices).toEqual(["eth0"]);
  expect(flowtable.failures()).toMatchObject([expect.stringContaining("interface pod1")]);
  await pass(60_000);
  expect(flowtable.devices).toEqual(["eth0", "pod1"]);
  expect(flowtable.failures()).toEqual([]);
  expect(failures).toBe(1);
  expect(said().filter((line) => line.startsWith("warn"))).toEqual([
    "warn the kernel refused an interface of the flowtable; retrying",
  ]);
});

test("a kernel without flowtables is reported once, and no table is left", async () => {
  await kernel.commit([{ op: "add", kind: "table", ...FLOWTABLE_REF }]);
  kernel.failNext({ when: ({ kind }) => kind === "flowtable", errno: "ENOENT" });
  const flowtable = await start();
  expect(flowtable.unsupported).toContain("CONFIG_NFT_FLOW_OFFLOAD");
  await links.link((names) => names.set(5, "pod2"));
  await pass(120_000);
  expect(said()).toEqual(["warn no flowtable; connections use the rules", "info flowtable removed"]);
  expect(await kernel.tables("inet")).toEqual([]);
});

test.each([
  ["6.1.0-50-amd64", "connections in a flowtable cannot be reset before Linux 6.4, and this is Linux 6.1.0-50-amd64"],
  ["6.14.0", "from Linux 6.14 on, the end of connections in a flowtable is not tracked, and this is Linux 6.14.0"],
  ["7.2.13", "from Linux 6.14 on"],
])("on Linux %s nothing is written", async (kernelRelease, reason) => {
  const flowtable = await start({ kernelRelease });
  expect(flowtable.unsupported).toContain(reason);
  expect(kernel.commits).toEqual([]);
  expect(links.watches).toBe(0);
});

test("a write whose outcome is unknown recreates the table, and reports success", async () => {
  const flowtable = await start();
  kernel.loseReply();
  await links.link((names) => names.set(5, "pod2"));
  expect(flowtable.failures()).toHaveLength(1);
  await pass(1000);
  expect(flowtable.failures()).toEqual([]);
  expect(flowtable.devices).toEqual(["eth0", "pod1", "pod2"]);
  expect(said().slice(-3)).toEqual([
    "info flowtable created",
    "info interfaces added to the flowtable",
    "info the flowtable is up to date again",
  ]);
  expect(failures).toBe(1);
});

test("an event stream that ended is opened again", async () => {
  const flowtable = await start();
  links.handlers?.onError(new Error("the socket is gone"));
  links.present.set(5, "pod2");
  await pass(1000);
  expect(links.watches).toBe(2);
  expect(flowtable.devices).toContain("pod2");
});

test("it is created again within a minute after another process removed it", async () => {
  const flowtable = await start();
  await removeFlowtable(kernel.asOther(), keptIn([]));
  await pass(60_000);
  expect((await kernel.tables("inet")).map(({ table }) => table)).toEqual([FLOWTABLE_REF.table]);
  expect(flowtable.devices).toEqual(["eth0", "pod1"]);
  expect(said()).toContain("warn another process removed the flowtable; creating it again");
});

test("nothing is written after the end, and the table stays", async () => {
  const flowtable = await start();
  await flowtable.close();
  const commits = kernel.commits.length;
  await links.link((names) => names.set(5, "pod2"));
  await pass(120_000);
  expect(kernel.commits).toHaveLength(commits);
  expect(await kernel.tables("inet")).toHaveLength(1);
});

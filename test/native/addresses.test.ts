/** Address events of the addon during many changes, and when the kernel drops some. */
import { execFile, spawnSync } from "node:child_process";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { KernelError } from "../../src/nft/kernel/errors.js";
import { formatAddress } from "../../src/base/ip.js";
import { EVENTUALLY_MS } from "../lab/eventually.ts";
import { useLab } from "./lab.js";

const lab = useLab();

/** Runs lines for `ip -batch` in the lab's namespace. */
async function ip(lines: readonly string[]): Promise<void> {
  const running = promisify(execFile)("nsenter", [`--net=${lab().netns}`, "ip", "-batch", "-"]);
  running.child.stdin?.end(`${lines.join("\n")}\n`);
  await running;
}

/** Bytes of unread events of each netlink socket of the namespace. */
function waiting(netns: string): ReadonlyMap<string, number> {
  const { stdout } = spawnSync("nsenter", [`--net=${netns}`, "cat", "/proc/net/netlink"], { encoding: "utf8" });
  const rows = stdout.split("\n").slice(1, -1);
  return new Map(
    rows.map((row) => {
      const [socket = "", , , , bytes] = row.trim().split(/\s+/);
      return [socket, Number(bytes)];
    }),
  );
}

/**
 * Blocks the main thread until the sockets opened since `before` are read, because the reading thread may have had no core. That thread may
 * still hold the last event.
 */
function untilRead(netns: string, before: ReadonlyMap<string, number>): void {
  const limit = performance.now() + EVENTUALLY_MS;
  const unread = (): boolean => [...waiting(netns)].some(([socket, bytes]) => bytes > 0 && !before.has(socket));
  while (unread()) if (performance.now() > limit) throw new Error("events are not read");
}

const many = Array.from({ length: 2000 }, (_, i) => `198.18.${i >> 8}.${i & 255}`);

test("thousands of changes are reported in far fewer calls, the last of them after the last change", async () => {
  const { kernel } = lab();
  let reported = 0;
  let seen: string[] = [];
  let reading = Promise.resolve();
  // Only a change interrupts a dump, and that will be reported.
  const read = async (): Promise<void> => {
    const addresses = await kernel.interfaces.addresses().catch((error: unknown) => {
      if (error instanceof KernelError && error.code === "interrupted") return undefined;
      throw error;
    });
    if (addresses !== undefined) seen = addresses.map(({ address }) => formatAddress(address));
  };
  const monitor = await kernel.interfaces.watchAddresses({
    onChange: () => {
      reported++;
      reading = reading.then(read);
    },
    onLost: () => {
      reading = reading.then(read);
    },
    onError: (error) => {
      throw error;
    },
  });
  await ip(many.map((address) => `address add ${address}/32 dev lo`));
  await expect.poll(() => seen.length).toBe(many.length);
  await ip(many.map((address) => `address delete ${address}/32 dev lo`));
  await expect.poll(() => seen.length).toBe(0);
  await monitor.close();
  await reading;
  expect(reported).toBeLessThan(2 * many.length);
});

test("a busy main thread misses nothing that matters: one call reports everything that happened", async () => {
  const { kernel, netns } = lab();
  const calls: string[] = [];
  // The socket of a closed monitor may still exist.
  const before = waiting(netns);
  const monitor = await kernel.interfaces.watchAddresses({
    onChange: () => void calls.push("change"),
    onLost: () => void calls.push("lost"),
    onError: (error) => void calls.push(error.message),
  });
  const input = many
    .slice(0, 200)
    .flatMap((address) => [`address add ${address}/32 dev lo`, `address delete ${address}/32 dev lo`]);
  // The event loop is blocked until everything is done.
  const done = spawnSync("nsenter", [`--net=${netns}`, "ip", "-batch", "-"], { input: `${input.join("\n")}\n` });
  expect(done.status).toBe(0);
  untilRead(netns, before);
  await expect.poll(() => calls.length).toBeGreaterThan(0);
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(calls.length).toBeLessThanOrEqual(2);
  await monitor.close();
});

test("events that exceed the buffer are reported as lost, and the next read is right", async () => {
  const { open } = lab();
  const kernel = await open({ receiveBufferBytes: 4096 });
  const reported = { lost: 0 };
  const monitor = await kernel.interfaces.watchAddresses({
    onChange: () => undefined,
    onLost: () => void reported.lost++,
    onError: (error) => {
      throw error;
    },
  });
  const burst = [
    "link add burst0 type veth peer name peer2",
    ...many.map((each) => `address add ${each}/32 dev burst0`),
  ];
  for (let round = 0; round < 50 && reported.lost === 0; round++) {
    await ip(burst);
    // All addresses are removed at once, in one step of the kernel; a reader on another core may still be fast enough.
    await ip(["link delete burst0"]);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  expect(reported.lost).toBeGreaterThan(0);
  expect(await kernel.interfaces.addresses()).toEqual([]);
  await monitor.close();
});

test("closing with an open watch leaves nothing behind, and a removed link removes its addresses", async () => {
  const { open } = lab();
  const kernel = await open();
  let changes = 0;
  const quiet = { onLost: () => undefined, onError: () => undefined };
  await ip(["link add gone0 type veth peer name peer0", "address add 192.0.2.200/32 dev gone0"]);
  await kernel.interfaces.watchAddresses({ ...quiet, onChange: () => void changes++ });
  await ip(["link delete gone0"]);
  await expect.poll(() => changes).toBeGreaterThan(0);
  expect((await kernel.interfaces.addresses()).filter(({ interfaceName }) => interfaceName === "gone0")).toEqual([]);
  await kernel.close();
});

test("an IPv6 address that disappears when its link goes down is reported", async () => {
  const { kernel } = lab();
  await ip([
    "link add down0 type veth peer name peer1",
    "link set down0 up",
    "address add 2001:db8::200/64 dev down0 nodad",
  ]);
  let changes = 0;
  const monitor = await kernel.interfaces.watchAddresses({
    onChange: () => void changes++,
    onLost: () => undefined,
    onError: () => undefined,
  });
  const here = async (): Promise<string[]> =>
    (await kernel.interfaces.addresses())
      .map(({ address }) => formatAddress(address))
      .filter((text) => text === "2001:db8::200");
  expect(await here()).toHaveLength(1);
  await ip(["link set down0 down"]);
  await expect.poll(() => changes).toBeGreaterThan(0);
  await expect.poll(here).toEqual([]);
  await monitor.close();
});

test("links that are added, removed or renamed are reported, and addresses are not", async () => {
  const { kernel } = lab();
  let changes = 0;
  const names = async (): Promise<string[]> => [...(await kernel.interfaces.names()).values()];
  const monitor = await kernel.interfaces.watchLinks({
    onChange: () => void changes++,
    onLost: () => void changes++,
    onError: (error) => {
      throw error;
    },
  });
  const reported = async (line: string): Promise<void> => {
    const before = changes;
    await ip([line]);
    await expect.poll(() => changes).toBeGreaterThan(before);
  };
  await reported("link add one0 type veth peer name two0");
  expect(await names()).toEqual(expect.arrayContaining(["one0", "two0"]));
  await reported("link set two0 name three0");
  expect(await names()).toContain("three0");
  await reported("link delete one0");
  expect(await names()).not.toContain("three0");
  await monitor.close();
  const before = changes;
  await ip(["link add one0 type veth peer name two0", "link delete one0"]);
  expect(changes).toBe(before);
});

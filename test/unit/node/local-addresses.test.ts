/** When the program is notified of interface addresses: only if they differ, also after every kind of failure. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { FakeInterfaces, interfaceAddress as on } from "../../fakes/fake-interfaces.ts";
import { LocalAddresses } from "../../../src/node/local-addresses.js";
import { keptIn } from "../../support/log.ts";

let interfaces: FakeInterfaces;
let logged: Record<string, unknown>[];
let changes: number;
let subject: LocalAddresses;

beforeEach(() => {
  vi.useFakeTimers();
  interfaces = new FakeInterfaces([on("192.0.2.2"), on("192.0.2.1"), on("192.0.2.1", "eth1")]);
  logged = [];
  changes = 0;
  subject = new LocalAddresses(interfaces, keptIn(logged, "info"), () => void changes++);
});
afterEach(async () => {
  await subject.close();
  vi.useRealTimers();
});

const texts = async (): Promise<string[]> => (await subject.current()).map(({ address }) => address);
const pass = (ms = 0): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

describe("LocalAddresses", () => {
  it("reads once, each address once, sorted; the rest is memory", async () => {
    const read = vi.spyOn(interfaces, "addresses");
    expect(await texts()).toEqual(["192.0.2.1", "192.0.2.2"]);
    expect(await texts()).toEqual(["192.0.2.1", "192.0.2.2"]);
    await pass(60_000);
    expect(read).toHaveBeenCalledTimes(1);
    expect(changes).toBe(0);
  });

  it("reports added and removed addresses of either family", async () => {
    await texts();
    interfaces.set([on("192.0.2.1"), on("2001:db8::1")]);
    await pass();
    expect(changes).toBe(1);
    expect(await texts()).toEqual(["192.0.2.1", "2001:db8::1"]);
    interfaces.set([]);
    await pass();
    expect(changes).toBe(2);
    expect(await texts()).toEqual([]);
  });

  it("reports no change of state, no other interface, and no change that was already undone", async () => {
    await texts();
    interfaces.set([on("192.0.2.1", "eth7"), on("192.0.2.2")]);
    await pass();
    interfaces.set([]);
    interfaces.set([on("192.0.2.2"), on("192.0.2.1")]);
    await pass();
    expect(changes).toBe(0);
  });

  it("reads again when a change comes during a read", async () => {
    await texts();
    let during = (): void => interfaces.set([on("192.0.2.9")]);
    const read = interfaces.addresses.bind(interfaces);
    vi.spyOn(interfaces, "addresses").mockImplementation(async () => {
      const answer = await read();
      during();
      during = () => undefined;
      return answer;
    });
    interfaces.set([on("192.0.2.8")]);
    await pass();
    expect(await texts()).toEqual(["192.0.2.9"]);
  });

  it("reads again when the kernel dropped events", async () => {
    await texts();
    vi.spyOn(interfaces, "addresses").mockResolvedValue([on("192.0.2.5")]);
    interfaces.loseEvents();
    await pass();
    expect(await texts()).toEqual(["192.0.2.5"]);
    expect(changes).toBe(1);
  });

  it("tries an interrupted read again soon, and keeps what it knows until then", async () => {
    await texts();
    interfaces.interruptReads(2);
    interfaces.set([on("192.0.2.5")]);
    await pass();
    expect(await texts()).toEqual(["192.0.2.1", "192.0.2.2"]);
    await pass(50);
    await pass(100);
    expect(await texts()).toEqual(["192.0.2.5"]);
    expect(changes).toBe(1);
    expect(logged).toEqual([]);
  });

  it("subscribes and reads again when the stream ends, and says so", async () => {
    await texts();
    interfaces.breakMonitors(new Error("the socket died"));
    interfaces.set([on("192.0.2.5")]);
    await pass();
    expect(changes).toBe(0);
    await pass(50);
    expect(await texts()).toEqual(["192.0.2.5"]);
    expect(logged).toHaveLength(1);
    expect(JSON.stringify(logged[0])).toContain("the socket died");
    interfaces.set([on("192.0.2.6")]);
    await pass();
    expect(await texts()).toEqual(["192.0.2.6"]);
  });

  it("works without events while it cannot subscribe, and retries with backoff", async () => {
    const attempts: number[] = [];
    const start = Date.now();
    const watch = interfaces.watchAddresses.bind(interfaces);
    vi.spyOn(interfaces, "watchAddresses").mockImplementation((handlers) => {
      attempts.push(Date.now() - start);
      return attempts.length < 4 ? Promise.reject(new Error("no socket")) : watch(handlers);
    });
    expect(await texts()).toEqual(["192.0.2.1", "192.0.2.2"]);
    await pass(10_000);
    expect(attempts).toEqual([0, 50, 150, 350]);
    interfaces.set([]);
    await pass();
    expect(changes).toBe(1);
  });

  it("fails the first question when there is no answer, and answers the next", async () => {
    interfaces.interruptReads();
    await expect(subject.current()).rejects.toMatchObject({ code: "interrupted" });
    expect(await texts()).toEqual(["192.0.2.1", "192.0.2.2"]);
  });

  it("is silent once closed", async () => {
    await texts();
    interfaces.set([]);
    await subject.close();
    interfaces.set([on("192.0.2.5")]);
    await pass(10_000);
    expect(changes).toBe(0);
  });
});
